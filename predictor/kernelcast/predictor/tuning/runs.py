"""Code versions and tunables of each program on each GPU, as running programs report them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from kernelcast.predictor.series.subjects import DeviceKey

MAX_RUNS: Final = 50_000

RunKey = tuple[str, DeviceKey]
"""Program, and its GPU."""


@dataclass(slots=True)
class ProgramRun:
    """One program on one GPU, as it was last reported; replaced, never changed, once others can see it.

    Attributes:
        code_version: Its version; empty where it reports none.
        device_model: Model of the GPU; empty where it is not known.
        values: Value of each tunable with the kernels that it concerns, by name; no kernels for all of the program.
        heard_ns: When a report came last.
    """

    code_version: str = ""
    device_model: str = ""
    values: dict[str, tuple[str, str]] = field(default_factory=dict)
    heard_ns: int = 0


class ProgramRuns:
    """All programs by GPU; bounded.

    Attributes:
        refused: Reports of further programs on further GPUs.
    """

    def __init__(self) -> None:
        self._runs: dict[RunKey, ProgramRun] = {}
        self.refused = 0

    def observe(self, words: Mapping[str, str], *, now_ns: int) -> None:
        """Record the labels of a point of `kernelcast.tunable.info`."""
        place = words.get("Hostname", ""), words.get("UUID", ""), words.get("GPU_I_ID", "")
        key = words.get("program", ""), place
        before = self._runs.get(key)
        if before is None and len(self._runs) >= MAX_RUNS:
            self.refused += 1
            return
        version, own = words.get("code_version", ""), (words.get("value", ""), words.get("kernel", ""))
        name = words.get("tunable", "")
        if before is not None and (before.code_version, before.values.get(name)) == (version, own):
            before.heard_ns = now_ns
            return
        # Another version may have other tunables.
        kept = before.values if before is not None and before.code_version == version else {}
        self._runs[key] = ProgramRun(version, words.get("device_model", ""), {**kept, name: own}, now_ns)

    def all(self) -> Mapping[RunKey, ProgramRun]:
        """Every program on every GPU."""
        return dict(self._runs)

    def drop_silent(self, before_ns: int) -> None:
        """Forget programs without a report since then."""
        self._runs = {key: run for key, run in self._runs.items() if run.heard_ns >= before_ns}
