"""Pauses trials on this node while an alert fires on a program's GPU, node or job, and where the site's policy says so.

Input: alerts and policy from Kafka. Output: two files beside the probe's socket, which programs read. The alerts are
those that Alertmanager sent to the bridge: every alert of the site, without silenced ones. An exporter reads them from
Kafka itself, so that pauses do not depend on a running predictor.
"""

import contextlib
import os
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from kernelcast.exporter.hints.orders import StoppedFile
from kernelcast.runtime.kafka.clients import DeadLetterSink, ReceivedMessage
from kernelcast.runtime.logging import get_logger
from kernelcast.wire.cloudevents import NANOSECONDS, decode_event
from kernelcast.wire.errors import EventError
from kernelcast.wire.events import Alert, alert_from
from kernelcast.wire.identity import PROGRAM_PATTERN, Device, Process
from kernelcast.wire.tuning.experience import EXPERIENCE_TYPE, Experience, experience_from
from kernelcast.wire.tuning.orders import ANY
from kernelcast.wire.tuning.policy import POLICY_KEY, Mode, Policy, policy_from

MAX_ALERTS: Final = 4096
"""Bound of memory; beyond it the alert that was received longest ago is dropped and counted."""
FORGOTTEN_NS: Final = 24 * 3600 * NANOSECONDS
"""Alertmanager repeats a firing alert, every four hours by default; one that is not repeated counts as resolved."""
NO_ALERTS: Final = frozenset({"info", "none"})
"""Severities that need no action."""
OWN_ALERTS: Final = "KernelcastHint"
"""Alerts about hints begin so; a trial must not pause the next one."""
NODE_LABELS: Final = ("Hostname", "node", "nodename", "host")
"""Labels in which alerts of common tools carry the name of a node."""
RENEW_SECONDS: Final = 60.0
"""Age at which an unchanged file is touched: programs ignore an old file, because its exporter may have ended."""

_log = get_logger(__name__)


class RunningProgram(Protocol):
    """A process that reports to this node."""

    @property
    def process(self) -> Process:
        """Its identity."""

    @property
    def devices(self) -> tuple[Device, ...]:
        """Its GPUs."""


@dataclass(frozen=True, slots=True)
class FiringAlert:
    """An alert that fires, and when it was last received, Unix nanoseconds."""

    alert: Alert
    heard_ns: int

    @property
    def reason(self) -> str:
        """The reason for a pause, for people."""
        labels = self.alert.labels
        where = " ".join(labels[name] for name in ("Hostname", "UUID", "program") if labels.get(name))
        return f"alert {labels.get('alertname', self.alert.fingerprint)} fires" + (f" on {where}" if where else "")


class PausedPrograms:
    """Finds the paused programs of this node, and writes them to the files that programs read.

    The thread that reads Kafka adds alerts and the policy; the daemon's thread calls `apply`.

    Args:
        node: Name of the node.
        all_: File of the programs whose trials are paused.
        spaces: File of the programs whose own searches are paused.
        clock: Unix nanoseconds.

    Attributes:
        dropped: Alerts that were forgotten because too many fire.
    """

    def __init__(
        self, node: str, all_: StoppedFile, spaces: StoppedFile, *, clock: Callable[[], int] = time.time_ns
    ) -> None:
        self._node = node
        self._all = all_
        self._spaces = spaces
        self._clock = clock
        self._alerts: OrderedDict[str, FiringAlert] = OrderedDict()
        self._policy = Policy()
        self._is_open = False
        self.dropped = 0

    def caught_up(self) -> None:
        """Allow `apply` to write, once alerts and policy have been read; until then the files of the last run hold."""
        self._is_open = True

    def learn_policy(self, policy: Policy) -> None:
        """Use this policy from now on."""
        self._policy = policy

    def learn_alert(self, alert: Alert, heard_ns: int) -> None:
        """Keep an alert while it fires and could concern a program of this node."""
        if alert.status != "firing" or not self._concerns(alert):
            self._alerts.pop(alert.fingerprint, None)
            return
        self._alerts[alert.fingerprint] = FiringAlert(alert, heard_ns)  # replaced at once: `apply` may run meanwhile
        self._alerts.move_to_end(alert.fingerprint)
        while len(self._alerts) > MAX_ALERTS:
            self._alerts.popitem(last=False)
            self.dropped += 1

    def forget_alert(self, fingerprint: str) -> None:
        """Forget an alert that was removed from the topic."""
        self._alerts.pop(fingerprint, None)

    def apply(self, running: Iterable[RunningProgram]) -> None:
        """Write the files for the programs that run now."""
        if not self._is_open:
            return
        now_ns = self._clock()
        self._write(self._all, self._reasons(running, now_ns))
        self._write(self._spaces, _by_mode(self._policy, Mode.PROPOSE, "spaces are not searched by themselves"))

    def _reasons(self, running: Iterable[RunningProgram], now_ns: int) -> dict[str, str]:
        """Return the reasons by program; `*` means every program, and an empty reason exempts a program from `*`."""
        firing = [one for one in list(self._alerts.values()) if one.heard_ns > now_ns - FORGOTTEN_NS]
        reasons = _by_mode(self._policy, Mode.OFF, "nothing is tried")
        window = self._policy.quiet(now_ns)
        everywhere = f"quiet hours {window} UTC" if window else ""
        everywhere = everywhere or next((one.reason for one in firing if self._on_node(one.alert)), "")
        if everywhere:
            return {ANY: everywhere}
        jobs = {program: one.reason for one in firing if (program := _program(one.alert))}
        for process in running:
            on_gpu = (one.reason for one in firing if self._on_gpu(one.alert, process.devices))
            if reason := next(on_gpu, ""):
                jobs[process.process.program] = reason
        return {**reasons, **jobs}

    def _concerns(self, alert: Alert) -> bool:
        labels = alert.labels
        if labels.get("severity", "") in NO_ALERTS or labels.get("alertname", "").startswith(OWN_ALERTS):
            return False
        return bool(_program(alert) or labels.get("UUID")) or self._names_node(labels)

    def _names_node(self, labels: Mapping[str, str]) -> bool:
        return any(labels.get(name) == self._node for name in NODE_LABELS)

    def _on_node(self, alert: Alert) -> bool:
        labels = alert.labels
        return self._names_node(labels) and not any(labels.get(name) for name in ("UUID", "gpu", "program"))

    def _on_gpu(self, alert: Alert, devices: Iterable[Device]) -> bool:
        labels = alert.labels
        if uuid := labels.get("UUID"):
            return any(uuid == device.uuid for device in devices)
        gpu = labels.get("gpu")
        return bool(gpu) and self._names_node(labels) and any(gpu == device.gpu for device in devices)

    def _write(self, file: StoppedFile, reasons: Mapping[str, str]) -> None:
        try:
            if file.update(reasons):
                _log.info("paused programs changed", programs=len(reasons), file=str(file.path))
            elif reasons and time.time() - file.path.stat().st_mtime > RENEW_SECONDS:
                os.utime(file.path)
        except OSError as error:
            _log.warning("file of paused programs cannot be written", file=str(file.path), error=str(error))


class AlertInbox:
    """Passes Alertmanager's alerts to `PausedPrograms`; alerts count at once."""

    def __init__(self, pauses: PausedPrograms) -> None:
        self._pauses = pauses

    def receive(self, message: ReceivedMessage) -> None:
        """Process one message."""
        value = message.value()
        if value is None:
            self._pauses.forget_alert((message.key() or b"").decode(errors="replace"))
            return
        with contextlib.suppress(EventError):  # only the bridge's alerts count; other writers' messages are skipped
            self._pauses.learn_alert(alert_from(decode_event(value)), _written_ns(message))

    def caught_up(self) -> None:
        """Do nothing: alerts count at once."""


class PolicyInbox:
    """Passes the site's policy to the pauses, and results of searches of all nodes to the programs.

    Args:
        pauses: Receives the policy.
        teach: Passes a search's result to the processes that have its space, now and later.
        dead_letters: Receives messages that are neither.
    """

    def __init__(
        self, pauses: PausedPrograms, teach: Callable[[Experience], None], dead_letters: DeadLetterSink
    ) -> None:
        self._pauses = pauses
        self._teach = teach
        self._dead_letters = dead_letters

    def receive(self, message: ReceivedMessage) -> None:
        """Process one message."""
        key, value = message.key() or b"", message.value()
        try:
            if value is None:
                self._forget(key.decode(errors="replace"))
                return
            event = decode_event(value)
            if event["type"] == EXPERIENCE_TYPE:
                self._teach(experience_from(event))
            else:
                self._pauses.learn_policy(policy_from(event))
        except EventError as error:
            self._dead_letters.send(message, error)

    def _forget(self, key: str) -> None:
        if key == POLICY_KEY:
            self._pauses.learn_policy(Policy())

    def caught_up(self) -> None:
        """Let the pauses take effect."""
        self._pauses.caught_up()


def _program(alert: Alert) -> str:
    """Return the program that an alert names; empty without one, or if the label is another system's."""
    name = alert.labels.get("program", "")
    return name if name != ANY and PROGRAM_PATTERN.fullmatch(name) else ""


def _by_mode(policy: Policy, mode: Mode, effect: str) -> dict[str, str]:
    """Return the reason for each program with a mode; if `*` has the mode, an empty reason exempts other programs."""
    everyone = policy.modes.get(ANY) is mode
    return {
        program: f"the site's policy is {mode}: {effect}" if found is mode else ""
        for program, found in policy.modes.items()
        if found is mode or everyone
    }


def _written_ns(message: Any) -> int:
    _, milliseconds = message.timestamp()
    return max(0, int(milliseconds)) * 1_000_000
