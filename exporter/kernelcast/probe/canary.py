"""One trial of one value: blocks of steps with the old and the new value in turn, compared pair by pair."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import log

from kernelcast.probe.recording.recorder import Spent
from kernelcast.probe.tunables import AnyTunable
from kernelcast.probe.verdict import CanaryPolicy, Decision, Verdict, judge
from kernelcast.wire.events import Hint

Meter = Callable[[], Mapping[tuple[int, str], Spent]]


@dataclass(frozen=True, slots=True)
class Trial:
    """A trial: a hint's value on a tunable that has another value now."""

    hint: Hint
    tunable: AnyTunable
    old: str

    @property
    def new(self) -> str:
        """The proposed value."""
        return self.hint.value


class Canary:
    """Runs a trial. The program's thread calls `boundary` at each step boundary; only that changes the value.

    Args:
        trial: The trial.
        policy: Its limits.
        meter: Returns the device time of the tunable's kernels so far.
    """

    def __init__(self, trial: Trial, policy: CanaryPolicy, meter: Meter) -> None:
        self.trial = trial
        self._policy = policy
        self._meter = meter
        self._step = 0
        self._trying_new = False
        self._mark: Mapping[tuple[int, str], Spent] = {}
        self._old_ns = 0.0
        self._void_blocks = 0
        self._log_ratios: list[float] = []
        if not policy.warm_up_steps:
            self._mark = meter()

    def boundary(self) -> Verdict | None:
        """Handle the end of a step; returns the verdict once there is one, and its value is then in force."""
        self._step += 1
        if self._step == self._policy.warm_up_steps:
            self._mark = self._meter()
        if self._step < self._policy.warm_up_steps + self._policy.measured_steps:
            return None
        verdict = self._close_block(device_time_ns(self._mark, self._meter()))
        if verdict.decision is not Decision.MEASURE_ON:
            self.trial.tunable.put(self.trial.new if verdict.decision is Decision.KEEP else self.trial.old)
            return verdict
        self._trying_new = not self._trying_new
        self.trial.tunable.set_for_trial(self.trial.new if self._trying_new else self.trial.old)
        self._step = 0
        if not self._policy.warm_up_steps:
            self._mark = self._meter()
        return None

    def _close_block(self, spent_ns: float) -> Verdict:
        if spent_ns <= 0:
            self._void_blocks += 1
        if self._void_blocks >= self._policy.max_void_blocks:
            reason = f"{self._void_blocks} blocks of steps had no timed launch of the tunable's kernels"
            return Verdict(Decision.ROLL_BACK, reason, pairs=len(self._log_ratios))
        if not self._trying_new:
            self._old_ns = spent_ns
        elif spent_ns > 0 and self._old_ns > 0:
            self._log_ratios.append(log(spent_ns / self._old_ns))
            return judge(self._log_ratios, self._policy)
        return Verdict(Decision.MEASURE_ON, "within a pair")


def device_time_ns(before: Mapping[tuple[int, str], Spent], after: Mapping[tuple[int, str], Spent]) -> float:
    """Device time between two readings; launches that were not timed count as the mean of those that were."""
    total_ns = 0.0
    nothing = Spent(0, 0, 0)
    for key, now in after.items():
        then = before.get(key, nothing)
        timed = now.timed - then.timed
        if timed > 0:
            total_ns += (now.sum_ns - then.sum_ns) * (now.launches - then.launches) / timed
    return total_ns
