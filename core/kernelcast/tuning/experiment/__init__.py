"""One candidate configuration against the kept one."""

from kernelcast.tuning.experiment.arms import Arm, Decision, ExperimentVerdict, Rules
from kernelcast.tuning.experiment.experiment import Experiment
from kernelcast.tuning.experiment.schedule import Launch

__all__ = ["Arm", "Decision", "Experiment", "ExperimentVerdict", "Launch", "Rules"]
