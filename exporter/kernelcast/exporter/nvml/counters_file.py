"""The table of device rows to read and write, which users may edit, in dcgm-exporter's format.

A line is `# comment` or `FIELD, type, help`. FIELD may be any name that DCGM has for it: series have that name.
`python -m kernelcast.exporter.nvml.counters_file` prints our own table.
`NvmlSource.poll` asks `CountersFile.changed` at each interval, on the daemon's thread.
Source of the format: dcgm-exporter, etc/default-counters.csv.
"""

import csv
import difflib
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Final

from kernelcast.exporter.nvml.sampling import nvlink
from kernelcast.exporter.nvml.sampling.fields import DEFAULT_ROWS, ROWS, SOURCE_ROWS
from kernelcast.exporter.nvml.sampling.sampler import SamplerOptions
from kernelcast.wire.catalogue import Metric, own_name
from kernelcast.wire.catalogue.devices.dcgm_names import CANONICAL_NAMES
from kernelcast.wire.catalogue.devices.device import DRIVER_VERSION_LABEL, OPT_IN_LABELS
from kernelcast.wire.errors import ConfigurationError

COLUMNS: Final = 3
TYPES: Final = ("gauge", "counter", "histogram", "summary", "label")
DCGM_NAME: Final = re.compile(r"DCGM_(FI|EXP)_[A-Z0-9_]+")
LABELS: Final = (DRIVER_VERSION_LABEL, *OPT_IN_LABELS)
"""Names that a line of type `label` may have; every device row has the first one, whatever the table names."""
_OWN_LABELS: Final = MappingProxyType({CANONICAL_NAMES[name]: name for name in LABELS if name in CANONICAL_NAMES})
"""Our names of labels by DCGM's canonical ones."""
LINK_FIELD: Final = re.compile(r"DCGM_FI_DEV_NVLINK_\w+_L\d+")
"""DCGM's fields of one link each."""
INSTEAD: Final = MappingProxyType(
    {
        "DCGM_EXP_XID_ERRORS_TOTAL": "kernelcast_gpu_xid_errors_total",
        "DCGM_EXP_CLOCK_EVENTS_TOTAL": "kernelcast_gpu_clock_event_active",
        "DCGM_EXP_GPU_HEALTH_STATUS": "no row of its meaning, but kernelcast's alerts about GPUs (docs/runbooks.md)",
        "DCGM_EXP_CLOCK_THROTTLE_REASONS": "kernelcast_gpu_clock_event_active",
    }
)
"""Fields of dcgm-exporter that have no row here, and the row to use instead; only for messages."""


@dataclass(frozen=True, slots=True)
class CounterTable:
    """The rows and labels of a table.

    Attributes:
        rows: Rows with the table's name and help, by the catalogue's OTLP name, in the table's order.
        labels: Names of labels for every series of a GPU, by our name, in the table's order.
        warnings: A sentence for each line that cannot be served.
        sources: OTLP names of rows that are sampled because others are made from them.
    """

    rows: Mapping[str, Metric] = field(
        default_factory=lambda: MappingProxyType({name: ROWS[name] for name in DEFAULT_ROWS})
    )
    labels: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()

    @property
    def sampled(self) -> tuple[str, ...]:
        """OTLP names of all rows that are sampled."""
        counted = (SOURCE_ROWS[name] for name in self.rows if name in SOURCE_ROWS)
        return tuple(dict.fromkeys((*self.rows, *counted, *self.sources)))

    @property
    def hidden(self) -> frozenset[str]:
        """OTLP names of the rows that are sampled only because others are made from them."""
        return frozenset((*SOURCE_ROWS.values(), *self.sources)) - self.rows.keys()


def read_table(path: Path) -> CounterTable:
    """Read a table.

    Raises:
        ConfigurationError: It cannot be read, a line is not of the format, or a field is neither DCGM's nor ours.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            f"exporter.counters_file is {path}, which cannot be read: {error}; give a file, or null for our own table"
        ) from None
    found: dict[str, Metric] = {}
    labels: dict[str, str] = {}
    warnings: list[str] = []
    problems: list[str] = []
    for number, cells in _lines(path, text):
        problem = _problem(cells)
        if problem:
            problems.append(f"{path}:{number}: {problem}")
            continue
        name, kind, help_text = cells
        warnings.extend(f"{path}:{number}: {one}" for one in _warnings(name, kind, found))
        own = _own_name(name)
        if kind == "label" and own in LABELS:
            labels[own] = name
        elif kind != "label" and own in ROWS:
            row = ROWS[own]
            found[own] = replace(row, prometheus_name=name, otlp_name=name, help=help_text or row.help)
    if problems:
        raise ConfigurationError("\n".join(problems))
    return CounterTable(MappingProxyType(found), MappingProxyType(labels), tuple(warnings))


class CountersFile:
    """A table on disk, read again whenever the file changes, as a mounted ConfigMap does.

    Args:
        path: Path of the table; None for our own table, which never changes.
        processes: Whether processes are sampled as well; no table names them. Can be changed.
        nvlink: Metrics of each NVLink, which no table names either: one of `nvlink.CHOICES`.
        sources: OTLP names of rows to sample in any case; they are written where the table names them.

    Attributes:
        table: The last table that could be read.

    Raises:
        ConfigurationError: As `read_table`.
    """

    def __init__(
        self,
        path: Path | None = None,
        *,
        processes: bool = True,
        nvlink: str = nvlink.OFF,
        sources: tuple[str, ...] = (),
    ) -> None:
        self._path = path
        self.processes = processes
        self._nvlink = nvlink
        self._sources = sources
        self._seen = self._version()
        self.table = replace(CounterTable() if path is None else read_table(path), sources=sources)

    @property
    def options(self) -> SamplerOptions:
        """The sampler's options for this table."""
        table = self.table
        labels = tuple(name for name in table.labels if name in OPT_IN_LABELS)
        return SamplerOptions(table.sampled, self.processes, nvlink=self._nvlink, labels=labels)

    def changed(self) -> bool:
        """Whether there is a new table now.

        Raises:
            ConfigurationError: The file has changed and is wrong; raised once for each change, and the old table stays.
        """
        version = self._version()
        if self._path is None or version == self._seen:
            return False
        self._seen = version
        self.table = replace(read_table(self._path), sources=self._sources)
        return True

    def _version(self) -> tuple[int, ...]:
        """Identity of the file's content; a ConfigMap's file becomes a link to another file when it changes."""
        try:
            found = self._path.stat() if self._path is not None else None
        except OSError:
            return ()
        return (found.st_mtime_ns, found.st_size, found.st_ino) if found is not None else ()


def document() -> str:
    """Our own table as a file to edit: rows that are off by default are comments."""
    lines = [
        "# Which device rows the exporter writes: exporter.counters_file. dcgm-exporter's own tables work too.",
        "# Read again whenever it changes. Remove the # to have a row that is off by default.",
        "#",
        "# FIELD, type, help",
        "",
    ]
    for title, chosen in (("Written by default", True), ("Off by default", False)):
        lines.append(f"# {title}")
        for name, row in ROWS.items():
            if (name in DEFAULT_ROWS) is chosen:
                lines.append(f"{'' if chosen else '# '}{name}, {row.kind.value}, {_quoted(row.help)}")
        lines.append("")
    lines.append("# Labels on every series of a GPU, off by default; each value stays for as long as the driver runs")
    lines += [f"# {name}, label, {help_text}" for name, help_text in OPT_IN_LABELS.items()]
    lines.append("")
    return "\n".join(lines)


def _lines(path: Path, text: str) -> Iterator[tuple[int, list[str]]]:
    """The lines that are neither empty nor a comment, with their numbers.

    Raises:
        ConfigurationError: A line is too long for a table.
    """
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip().strip(",") and not line.lstrip().startswith("#"):
            try:
                (cells,) = csv.reader([line], skipinitialspace=True)
            except csv.Error as error:
                raise ConfigurationError(f"{path}:{number}: {error}; give a table of FIELD, type, help") from None
            yield number, [cell.strip() for cell in cells]


def _problem(cells: list[str]) -> str:
    """The fault of a line; empty without one."""
    if len(cells) != COLUMNS:
        return f"{len(cells)} columns; write FIELD, type, help, with a help that has a comma in double quotes"
    name, kind, _help = cells
    if not DCGM_NAME.fullmatch(name):
        return f"{name!r} is no field of DCGM's; {_nearest(name) or 'its fields begin with DCGM_FI_'}"
    if kind not in TYPES:
        return f"the type of {name} is {kind!r}; write one of {', '.join(TYPES)}"
    return ""


def _own_name(name: str) -> str:
    """Our name of a row or label."""
    return own_name(_OWN_LABELS.get(name, name))


def _warnings(name: str, kind: str, before: Mapping[str, Metric]) -> Iterator[str]:
    own = _own_name(name)
    if kind == "label":
        if own not in LABELS:
            yield f"{name} is not given as a label; {', '.join(LABELS)} are"
    elif own in LABELS:
        yield f"{name} is text, so it cannot be a {kind}; write label to have it on every series"
    elif LINK_FIELD.fullmatch(name):
        yield f"{name} is not given; exporter.nvlink_links gives every link, with its number in the label link"
    elif name in INSTEAD:
        yield f"{name} is not given; there is {INSTEAD[name]} instead"
    elif own not in ROWS:
        yield f"{name} is not given through NVML; it is left out{_perhaps(name)}"
    elif own in before:
        yield f"{name} stands twice; the later line counts"
    elif kind != ROWS[own].kind.value:
        yield f"{name} is a {ROWS[own].kind.value}, not a {kind}; it stays one, on Kafka and here"


def _perhaps(name: str) -> str:
    nearest = _nearest(name)
    return f"; {nearest}" if nearest else ""


def _nearest(name: str) -> str:
    found = difflib.get_close_matches(name, ROWS, n=1, cutoff=0.9)
    return f"did you mean {found[0]}?" if found else ""


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"' if "," in text else text


if __name__ == "__main__":
    sys.stdout.write(document())
