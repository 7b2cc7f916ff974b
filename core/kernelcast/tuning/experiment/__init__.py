"""One candidate configuration against the kept one."""

from kernelcast.tuning.experiment.arms import Arm, Decision, Rules, Verdict
from kernelcast.tuning.experiment.experiment import Experiment
from kernelcast.tuning.experiment.schedule import Launch

__all__ = ["Arm", "Decision", "Experiment", "Launch", "Rules", "Verdict"]
