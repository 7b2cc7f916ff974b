"""Which process and GPU an event of a Chrome trace is of, also where the traces of several ranks were merged.

PyTorch numbers a GPU's process as the GPU. Who merges ranks changes that (`[TP01] 0`, `0_rank1`), and their numbers of
GPUs and their correlation ids repeat: only process, device and correlation id together identify.
"""

import re
from collections.abc import Hashable, Iterable
from typing import Any, Final

from kernelcast.exporter.replay.formats.chrome import Event

_LABELLED: Final = re.compile(r"\d+(\D.*)|(.*\D)\d+", re.DOTALL)
MAX_DEVICE: Final = 2**31


class CallKeys:
    """Gives calls and the work that they launched the same key.

    Args:
        calls: The file's calls of a runtime.
    """

    def __init__(self, calls: Iterable[Event]) -> None:
        self._labels: dict[str, str] = {}
        self._processes: dict[str, str] = {}
        for event in calls:
            if _correlation(event) is not None:
                pid = str(event.get("pid"))
                self._processes.setdefault(pid, self._label(pid))

    @property
    def several(self) -> bool:
        """Whether several processes have calls."""
        return len(self._processes) > 1

    def of_call(self, event: Event) -> Hashable | None:
        """The key of a call; None without a correlation id."""
        correlation = _correlation(event)
        return None if correlation is None else (str(event.get("pid")), correlation)

    def of_work(self, event: Event) -> Hashable | None:
        """The key of the call that launched this work; None where that cannot be known."""
        correlation = _correlation(event)
        if correlation is None or not self._processes:
            return None
        process = self._process(str(event.get("pid")))
        return None if process is None else (process, correlation)

    def _process(self, pid: str) -> str | None:
        """The process whose calls launched the work of a GPU's process: the only one, or that of the same label."""
        if not self.several:
            return next(iter(self._processes))
        if pid in self._processes:
            return pid
        label = self._label(pid)
        alike = [process for process, its_label in self._processes.items() if label and its_label == label]
        return alike[0] if len(alike) == 1 else None

    def _label(self, pid: str) -> str:
        """What a merged process's name has beside its number; empty for a plain number."""
        if pid not in self._labels:
            match = _LABELLED.fullmatch(pid)
            self._labels[pid] = (match[1] or match[2]) if match else ""
        return self._labels[pid]


class Gpus:
    """Numbers the GPUs of a file.

    Attributes:
        models: Product names, by number.
        processes: In a file of several ranks with one number of a GPU: each GPU's process, by number.

    Args:
        work: Events of GPUs.
        properties: Product names by the number in the file's list of GPUs.
    """

    def __init__(self, work: Iterable[Event], properties: dict[int, str]) -> None:
        recorded = list(dict.fromkeys((str(event.get("pid")), _device(event)) for event in work))
        numbers = [device for _, device in recorded]
        self.processes: dict[int, str] = {}
        if len(set(numbers)) == len(numbers):
            listed = _listed(numbers, properties)
            self._numbers = {one: listed.get(one[1], one[1]) for one in recorded}
        else:
            self._numbers = {}
            for process, device in recorded:
                taken = set(self._numbers.values())
                number = device if device not in taken else max(taken | set(numbers)) + 1
                self._numbers[process, device] = number
                self.processes[number] = process
        names = set(properties.values())
        only = names.pop() if len(names) == 1 else ""
        self.models = {
            number: properties.get(device, only) if self.processes else properties.get(number, only)
            for (_, device), number in self._numbers.items()
        }

    def index(self, event: Event) -> int:
        """The number of an event's GPU."""
        device = _device(event)
        return self._numbers.get((str(event.get("pid")), device), device)


def _listed(numbers: list[int], properties: dict[int, str]) -> dict[int, int]:
    """Numbers of the file's list, by those of its events, where these are of another kind.

    ROCm's tracer counts the nodes of a machine, CPUs before GPUs; the list of GPUs counts from 0.
    """
    if set(numbers) <= set(properties) or len(numbers) != len(properties):
        return {}
    return dict(zip(sorted(numbers), sorted(properties), strict=True))


def _device(event: Event) -> int:
    """The recorded number of a GPU: an argument, else the number of the process."""
    arguments = event.get("args")
    device = arguments.get("device") if isinstance(arguments, dict) else None
    return _number(device, _number(event.get("pid"), 0))


def _number(value: Any, absent: int) -> int:
    try:
        number = int(value, 0) if isinstance(value, str) else int(value)
    except (TypeError, ValueError, OverflowError):
        return absent
    return number if 0 <= number < MAX_DEVICE else absent


def _correlation(event: Event) -> str | None:
    """The id that a call has in common with the work it launched; None for an event without one.

    0 is no id (`CUPTI_CORRELATION_ID_UNKNOWN`); ROCm's tracer writes it for work that it cannot link.
    """
    arguments = event.get("args")
    correlation = arguments.get("correlation") if isinstance(arguments, dict) else None
    return str(correlation) if correlation not in (None, 0, "0") else None
