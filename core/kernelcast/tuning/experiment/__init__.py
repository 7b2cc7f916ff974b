"""Compares one candidate configuration with the kept one, until a verdict.

The probe's trials, `Campaign` and `tuning.runs` use it. Inside: `schedule` plans launches, `comparison` matches their
times and judges, with `blocks`, `evidence`, `noise` and `lag`; `experiment` combines two measures. Each object is for
one thread.
"""

from kernelcast.tuning.experiment.arms import Arm, Decision, ExperimentVerdict, Objective, Rules
from kernelcast.tuning.experiment.experiment import Experiment
from kernelcast.tuning.experiment.schedule import Launch

__all__ = ["Arm", "Decision", "Experiment", "ExperimentVerdict", "Launch", "Objective", "Rules"]
