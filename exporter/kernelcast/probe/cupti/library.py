"""NVIDIA's libcupti: where it is, whether its records are known to us, and what its error codes mean.

Found in this order: the one that the process has mapped already, since a second would fight it for the driver; the
wheel `nvidia-cuda-cupti` or the one that PyTorch brings, both as `nvidia/…/lib` on the path of modules; the toolkit's.
"""

import ctypes
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from kernelcast.probe.process.mappings import MAPS, mapped_text

TOOLKITS: Final = ("extras/CUPTI/lib64", "lib64", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib")
KNOWN_VERSIONS: Final = (range(18, 29), range(130_000, 130_600))
"""CUPTI_API_VERSION of CUDA 12.0/12.1 to 12.9 and 13.0 to 13.5: NVIDIA's headers of 12.1, 12.9, 13.0 and 13.5 were
compared, and that of 13.5 still holds every struct between them; see native/records.h."""

MEMCPY: Final = 1
MEMSET: Final = 2
CONCURRENT_KERNEL: Final = 10
MEMCPY2: Final = 22
SYNCHRONIZATION: Final = 38
WORK_KINDS: Final = (CONCURRENT_KERNEL, MEMCPY, MEMCPY2, MEMSET)
"""Activity kinds of the GPU's work. Each kernel of a CUDA graph has its own record with the graph's number. CUPTI's
one record for a whole graph (GRAPH_TRACE, 51) is never asked for: on an H100 (CUPTI 13.0, driver 580.159) a graph that
was launched before it was enabled ended the program by SIGSEGV at its next launch, in each of four programs."""
KINDS: Final = (*WORK_KINDS, SYNCHRONIZATION)
"""Activity kinds that are enabled where no others are chosen."""

ZEROED_OUT_BUFFER: Final = 5
DEVICE_BUFFERS: Final = 32
SETTINGS: Final = (
    (ZEROED_OUT_BUFFER, ctypes.c_uint8, 1),
    (0, ctypes.c_size_t, 3_200_000),
    (2, ctypes.c_size_t, DEVICE_BUFFERS),
    (4, ctypes.c_size_t, DEVICE_BUFFERS),
)
"""Attributes of CUPTI (CUpti_ActivityAttribute, cupti_activity.h of 12.1 to 13.5), their types and our values.

Our buffers are zeros when CUPTI gets them; else it clears each on a thread of the program. On the device CUPTI keeps
the times of kernels, copies and fills in buffers of 3,200,000 bytes. It takes three at its start, 12 MiB on an H100;
32 are 128 MiB a context, and its own limit is 250. With all in use records come without times, which
cuptiActivityGetNumDroppedRecords does not count: its records are those for which there was no buffer of ours. The
fourth is the same for the kind KERNEL, which we do not enable, before 12.3. Whether each thread has a buffer of its
own (PER_THREAD_ACTIVITY_BUFFER, the default from 13.0 on) is left as it is: Kineto sets it back after each of its
traces, and a change within a session has undefined results.
"""
REFUSING_VERSION: Final = 27
"""From this version on (CUDA 12.9) a request for a buffer may be refused; CUPTI before it ends the program (NVIDIA's
release notes of CUPTI 12.9; pytorch/kineto, issue 1275)."""

FLUSH_FORCED: Final = 1
SUBSCRIBED_ALREADY: Final = 39
REASONS: Final = {
    7: "this is not allowed in the state that CUPTI is in; no other profiler may run",
    11: "this version of CUPTI does not have the call; install kernelcast[cupti]",
    14: "CUPTI and the driver do not fit together; install the CUPTI of the driver's CUDA version",
    15: "CUPTI cannot initialise: there is no driver, or one too old for it; install kernelcast[cupti12] for CUDA 12",
    26: "the hardware is held by another profiler",
    27: "not supported on this GPU",
    33: "not supported on a virtual GPU",
    35: "not permitted: set NVreg_RestrictProfilingToAdminUsers=0 in the driver's module options",
    36: "another profiler uses the old profiler API",
    38: "this GPU needs a newer profiler API",
    39: "another profiler has subscribed to CUPTI",
    40: "not permitted on this virtual GPU: allow profiling in its vGPU plug-in",
    41: "not supported under confidential computing",
    42: "not supported on CMP GPUs",
    43: "not supported on MIG devices",
    45: "not supported under WSL with this driver",
    999: "an error of CUPTI's own; without a driver, CUPTI of CUDA 13 answers so",
}
"""CUptiResult, cupti_result.h of CUPTI 13.5."""

_MAPPED: Final = re.compile(r"^(?:\S+ +){5}(/.*/libcupti\.so[.\d]*)$", re.MULTILINE)
_MAJOR: Final = re.compile(r"\.so\.(\d+)")


class CuptiError(Exception):
    """CUPTI cannot be used.

    Attributes:
        code: Its CUptiResult; 0 where it was not asked.
    """

    def __init__(self, message: str, code: int = 0) -> None:
        super().__init__(message)
        self.code = code


class Cupti:
    """The calls of libcupti that the method needs; each raises `CuptiError` with a reason that a user can act on.

    Args:
        library: libcupti, opened by ctypes.
    """

    def __init__(self, library: Any) -> None:
        self._library = library
        self._enabled: set[int] = set()
        self._before: list[tuple[int, Any]] = []
        self.version = self._version()
        if not any(self.version in known for known in KNOWN_VERSIONS):
            raise CuptiError(
                f"CUPTI's version is {self.version}; its records are known for 18 to 28 (CUDA 12) and 130000 to 130599 "
                "(CUDA 13.0 to 13.5); install kernelcast[cupti], or a newer kernelcast"
            )

    @property
    def next_record(self) -> int:
        """Address of cuptiActivityGetNextRecord."""
        return ctypes.cast(self._library.cuptiActivityGetNextRecord, ctypes.c_void_p).value or 0

    @property
    def must_have_buffers(self) -> bool:
        """Whether CUPTI ends the program if it is refused a buffer."""
        return self.version < REFUSING_VERSION

    def free_for_us(self, subscriber: Any) -> None:
        """Ask for the subscription and give it back at once, to learn whether another profiler holds it.

        NVIDIA's guide (CUPTI, "Initialization") names this as the way to find out. It is not kept: a profiler that the
        user starts later would get error 39 for it, and an empty trace.
        """
        handle = ctypes.c_void_p(0)
        self._call("cuptiSubscribe", ctypes.byref(handle), subscriber, None)
        self._call("cuptiUnsubscribe", handle)

    def configure(self) -> None:
        """Set `SETTINGS`, before callbacks and kinds; an attribute that this CUPTI refuses stays as it was."""
        for attribute, kind, value in SETTINGS:
            before = kind(0)
            if self._attribute("Get", attribute, before) and self._attribute("Set", attribute, kind(value)):
                self._before.append((attribute, before))

    def restore(self) -> None:
        """Set the attributes back for the next client: Kineto's buffers are not zeros, and its limits are its own."""
        while self._before:
            self._attribute("Set", *self._before.pop())

    def register(self, requested: Any, completed: Any) -> None:
        """Register the callbacks that provide empty buffers and receive completed ones."""
        self._call("cuptiActivityRegisterCallbacks", requested, completed)

    def enable(self, kinds: Iterable[int] = KINDS) -> None:
        """Enable records of these kinds; kinds that are enabled stay so. If one is refused, none of ours stays."""
        for kind in kinds:
            try:
                self._call("cuptiActivityEnable", ctypes.c_int(kind))
            except CuptiError:
                self.disable()
                raise
            self._enabled.add(kind)

    def disable(self, kinds: Iterable[int] | None = None) -> None:
        """Disable those of these kinds that were enabled here; without any given, all of them."""
        for kind in self._enabled.intersection(self._enabled if kinds is None else kinds):
            self._library.cuptiActivityDisable(ctypes.c_int(kind))
            self._enabled.discard(kind)

    def latency_timestamps(self) -> None:
        """Have kernels' times of queueing recorded; only before CUDA is initialised, and not free."""
        self._call("cuptiActivityEnableLatencyTimestamps", ctypes.c_uint8(1))

    def flush(self, *, forced: bool = False) -> None:
        """Have CUPTI complete the buffers whose records are complete; with `forced`, all buffers."""
        self._call("cuptiActivityFlushAll", ctypes.c_uint32(FLUSH_FORCED if forced else 0))

    def now_ns(self) -> int:
        """Return the present time on the clock of the records; 0 if it cannot be read."""
        time_ns = ctypes.c_uint64(0)
        return time_ns.value if self._library.cuptiGetTimestamp(ctypes.byref(time_ns)) == 0 else 0

    def dropped(self) -> int:
        """Records that CUPTI has dropped since the last call."""
        number = ctypes.c_size_t(0)
        error = self._library.cuptiActivityGetNumDroppedRecords(None, ctypes.c_uint32(0), ctypes.byref(number))
        return number.value if error == 0 else 0

    def _version(self) -> int:
        version = ctypes.c_uint32(0)
        self._call("cuptiGetVersion", ctypes.byref(version))
        return version.value

    def _attribute(self, verb: str, attribute: int, value: Any) -> bool:
        function = getattr(self._library, f"cuptiActivity{verb}Attribute", None)
        size = ctypes.c_size_t(ctypes.sizeof(value))
        return function is not None and function(attribute, ctypes.byref(size), ctypes.byref(value)) == 0

    def _call(self, name: str, *arguments: Any) -> None:
        function = getattr(self._library, name, None)
        if function is None:
            raise CuptiError(f"CUPTI lacks {name}; install kernelcast[cupti]")
        error = function(*arguments)
        if error:
            reason = REASONS.get(error, "see CUptiResult in NVIDIA's documentation of CUPTI")
            raise CuptiError(f"{name} answered {error}: {reason}", error)


def open_cupti(environ: Mapping[str, str] = os.environ, maps: Path = MAPS) -> Cupti:
    """The library that fits this process.

    Args:
        environ: Where `KERNELCAST_CUPTI_LIBRARY`, a path that is taken before all others, `CUDA_HOME` and `CUDA_PATH`
            stand.
        maps: The process's memory map.

    Raises:
        CuptiError: None is there, none can be loaded, or its version is not known.
    """
    errors = []
    for path in candidates(environ, maps):
        try:
            return Cupti(ctypes.CDLL(str(path)))
        except OSError as error:
            errors.append(f"{path}: {error}")
    found = f"; tried {'; '.join(errors)}" if errors else ""
    raise CuptiError(f"no libcupti was found{found}; install kernelcast[cupti], or kernelcast[cupti12] for CUDA 12")


def candidates(environ: Mapping[str, str], maps: Path = MAPS, path: Iterable[str] | None = None) -> list[Path]:
    """Candidate paths of libcupti, best first; wheels and toolkits of the mapped CUDA version before others."""
    chosen = environ.get("KERNELCAST_CUPTI_LIBRARY")
    if chosen:
        return [Path(chosen)]
    mapped = mapped_text(maps)
    present = [Path(found) for found in dict.fromkeys(_MAPPED.findall(mapped))]
    if present:
        return present
    wanted = re.findall(r"/libcudart\.so\.(\d+)", mapped)
    found = [*_wheels(sys.path if path is None else path), *_toolkits(environ)]
    return sorted(dict.fromkeys(found), key=lambda one: not _is_of(one, wanted))


def _is_of(path: Path, majors: list[str]) -> bool:
    match = _MAJOR.search(path.name)
    return match is not None and match[1] in majors


def _wheels(path: Iterable[str]) -> Iterator[Path]:
    for folder in path:
        for pattern in ("nvidia/cu1*/lib", "nvidia/cuda_cupti/lib"):
            yield from sorted(Path(folder).glob(f"{pattern}/libcupti.so.*[0-9]"), reverse=True)


def _toolkits(environ: Mapping[str, str]) -> Iterator[Path]:
    homes = (environ.get("CUDA_HOME"), environ.get("CUDA_PATH"), "/usr/local/cuda")
    for home in dict.fromkeys(filter(None, homes)):
        for folder in TOOLKITS:
            yield from sorted(Path(home, folder).glob("libcupti.so.1[0-9]"), reverse=True)
