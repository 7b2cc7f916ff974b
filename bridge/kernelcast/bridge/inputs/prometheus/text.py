"""Prometheus' text 0.0.4 and OpenMetrics 1.0: a page as a message. `Selection` makes one `PrometheusText`.

OpenMetrics' pages end with the line `# EOF`, and their timestamps count seconds; those of 0.0.4 count milliseconds. A
line whose series is known costs a look-up and a number; the grammar is used once per series. Names and labels stay as
they are. The last line needs no line feed: tools that make messages of lines remove it.

State of a page: a TYPE line sets the *context* (family and type) of the lines that follow. Spellings are kept by
context, because `x_sum` is a series by itself in one family, and a part of a histogram in another.
"""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any, Final

from kernelcast.bridge.inputs.formats import TopicFormat
from kernelcast.bridge.inputs.interning import Spellings
from kernelcast.bridge.inputs.naming import NamedSeries
from kernelcast.bridge.inputs.parsing import MAX_UNUSED, Parsing, malformed, text_of
from kernelcast.bridge.inputs.prometheus.exemplars import exemplar_of, histogram_fields, number_fields
from kernelcast.bridge.inputs.prometheus.histograms import BUCKET, CREATED, PARTS, START_TIME, PartialHistogram
from kernelcast.bridge.inputs.rows import BatchRows
from kernelcast.runtime import prometheus_text
from kernelcast.wire.catalogue import Kind

HISTOGRAM: Final = "histogram"
KINDS: Final = {
    "counter": Kind.COUNTER,
    "gauge": Kind.GAUGE,
    HISTOGRAM: Kind.HISTOGRAM,
    "gaugehistogram": Kind.GAUGE,
    "stateset": Kind.GAUGE,
    "info": Kind.INFO,
    "summary": Kind.SUMMARY,
    "untyped": Kind.UNKNOWN,
    "unknown": Kind.UNKNOWN,
}
"""Kind of a sample that is a series by itself, by its family's type."""
SUFFIXES: Final = {
    "counter": ("_total", "_created"),
    "histogram": ("_bucket", "_sum", "_count", "_created"),
    "gaugehistogram": ("_bucket", "_gsum", "_gcount"),
    "info": ("_info",),
    "summary": ("_sum", "_count", "_created"),
}
"""By type, suffixes of sample names that belong to the family."""
ALL_SUFFIXES: Final = tuple(sorted({suffix for suffixes in SUFFIXES.values() for suffix in suffixes}))
UNDECLARED: Final = ("", "unknown")
"""Context of lines without a TYPE."""
START_TIMES: Final = "start times of "
"""Before a type: the family has the start times of another one, which is of that type."""

Context = tuple[str, str]
"""A family's name and type, as the page declares them."""
SpellingData = int | tuple[int, int, float]
"""The data of a spelling: a series number; or number, part and bound, where the line is one part of a histogram."""


@dataclass(slots=True)
class ParsedPage:
    """State of reading one message.

    Attributes:
        rows: Where its points go.
        openmetrics: Whether timestamps are seconds.
        types: Type by family.
        helps: Help by family.
        units: Unit by family.
        assemblies: Histograms under construction, by number and time.
        starts: Creation times, by number.
    """

    rows: BatchRows
    openmetrics: bool
    types: dict[str, str] = field(default_factory=dict)
    helps: dict[str, str] = field(default_factory=dict)
    units: dict[str, str] = field(default_factory=dict)
    assemblies: dict[tuple[int, int], PartialHistogram] = field(default_factory=dict)
    starts: dict[int, int] = field(default_factory=dict)

    def started_type(self, name: str) -> str:
        """The type of the family whose start times a gauge has; empty if it has none.

        Text 0.0.4 of prometheus_client writes them so, because that format has no place for them. A program's own gauge
        may have such a name, too, but it has not the help of the other family.
        """
        owner = name.removesuffix("_created")
        for family, kinds in ((f"{owner}_total", ("counter",)), (owner, ("histogram", "summary"))):
            if (
                owner != name
                and self.types.get(family) in kinds
                and self.helps.get(family, "") == self.helps.get(name, None)
            ):
                return self.types[family]
        return ""

    def context(self, name: str) -> Context:
        """The family that a sample belongs to."""
        if name in self.types:
            return name, self.types[name]
        for suffix in ALL_SUFFIXES:
            family = name.removesuffix(suffix)
            if family != name and suffix in SUFFIXES.get(self.types.get(family, ""), ()):
                return family, self.types[family]
        return UNDECLARED

    def finish(self, first: int) -> None:
        """Add the histograms, and the start times of the message's points, which begin with row `first`."""
        for (number, time_ns), assembly in self.assemblies.items():
            point = assembly.point(number, time_ns, self.starts.get(number, 0))
            if point is None:
                self.rows.unsupported += 1
            else:
                self.rows.histograms.append(point)
                if assembly.exemplars:
                    fields = histogram_fields(assembly.exemplars)
                    self.rows.exemplars.append((len(self.rows.histograms) - 1, True, fields))
        if self.starts:
            for row, number in enumerate(self.rows.series[first:], first):
                if number in self.starts:
                    self.rows.start_ns[row] = self.starts[number]


class PrometheusText(Parsing):
    """Reads pages of text; for one thread.

    `_contexts` has, by context, the data of each spelling: `process_a 1` has the spelling `process_a`, and `a{b="c"} 1`
    the spelling `a{b="c"}`.
    """

    format = "prometheus"

    def __init__(self, settings: TopicFormat | None = None, **options: Any) -> None:
        super().__init__(settings, **options)
        self._contexts: defaultdict[Context, Spellings] = defaultdict(dict)

    def read(self, message: bytes, rows: BatchRows) -> None:
        """Read one page.

        Raises:
            DecodeError: A line of it breaks the grammar.
        """
        text = text_of(message, prometheus_text.FORMAT_TITLE)
        page = ParsedPage(rows, openmetrics=text.rstrip().endswith("# EOF"))
        first = len(rows.series)
        known = self._contexts[UNDECLARED]
        series, times, values = rows.series.append, rows.time_ns.append, rows.value.append
        for line in text.split("\n"):
            if line[:1] <= " ":
                line = line.lstrip(" \t")  # noqa: PLW2901  the same line
            if line[:1] == "#":
                known = self._read_comment(page, line, known)
                continue
            stop = (line.rfind("}") + 1 or max(line.find(" "), 0)) if " # " not in line else 0
            kept = known.get(line[:stop])
            if kept.__class__ is int:
                rest = line[stop:]
                try:
                    value = float(rest)
                except ValueError:
                    pass  # with a timestamp, or wrong
                else:
                    if "_" not in rest and rest.isascii():  # Python takes 1_0, and digits of every script
                        series(kept)
                        times(0)
                        values(value)
                        continue
            if line and not line.isspace():
                known = self._read_line(page, line, known, stop if kept is not None else 0)
        page.finish(first)

    def drop_unused(self) -> None:
        """Drop families without series."""
        super().drop_unused()
        if len(self._contexts) > len(self.interner) + MAX_UNUSED:
            self._contexts = defaultdict(dict, {key: known for key, known in self._contexts.items() if known})

    def _read_comment(self, page: ParsedPage, line: str, known: Spellings) -> Spellings:
        """Read a comment; returns the data of the family that the next lines belong to."""
        word, name, text = prometheus_text.comment(line)
        if word == "TYPE":
            if text not in KINDS:
                raise malformed(
                    prometheus_text.FORMAT_TITLE, "a line", line, f"one of the types {', '.join(sorted(KINDS))}"
                )
            started_type = page.started_type(name) if text == "gauge" else ""
            page.types[name] = f"{START_TIMES}{started_type}" if started_type else text
            return self._contexts[name, page.types[name]]
        if word == "HELP":
            page.helps[name] = text
        elif word == "UNIT":
            page.units[name] = text
        return known

    def _read_line(self, page: ParsedPage, line: str, known: Spellings, stop: int) -> Spellings:
        """Read a line whose series is not known (`stop` is 0), or that has more than a value behind it."""
        kept: SpellingData | None = known.get(line[:stop]) if stop else None
        if kept is None:
            spelled = prometheus_text.series(line)
            stop = spelled.stop
            context = page.context(spelled.name)
            known = self._contexts[context]
            kept = known.get(line[:stop])
            if kept is None:
                kept = self._admit(page, context, spelled, line[:stop])
        words = prometheus_text.after_series(line[stop:], line)
        value = prometheus_text.number(words[0])
        if kept is None:
            page.rows.unsupported += 1
            return known
        time_ns = prometheus_text.time_ns(words[1], seconds=page.openmetrics) if len(words) > 1 else 0
        exemplar = exemplar_of(line[stop:]) if page.openmetrics else None
        if isinstance(kept, int):
            if exemplar is not None:
                page.rows.exemplars.append((len(page.rows.series), False, number_fields(exemplar)))
            page.rows.series.append(kept)
            page.rows.time_ns.append(time_ns)
            page.rows.value.append(value)
            return known
        number, part, bound = kept
        if part == CREATED:
            page.starts[number] = prometheus_text.time_ns(words[0], seconds=True)
        elif part == START_TIME:
            page.starts[number] = (
                prometheus_text.time_ns(words[0], seconds=True) if 0 < value < prometheus_text.LAST_SECOND else 0
            )
        else:
            assembly = page.assemblies.setdefault((number, time_ns), PartialHistogram())
            assembly.add(part, bound, value)
            if exemplar is not None and part == BUCKET:
                assembly.exemplars.append(exemplar)
        return known

    def _admit(
        self, page: ParsedPage, context: Context, spelled: prometheus_text.ParsedSeries, spelling: str
    ) -> SpellingData | None:
        """Register a new spelling, with its series if that is new; returns the spelling's data.

        None if it has the name of a histogram itself, such as a quantile that Micrometer writes beside the buckets: as
        a series, it would take the histogram's name.
        """
        family, type_name = context
        if type_name.startswith(START_TIMES):
            return self._admit_start_time(page, context, spelled, spelling)
        suffix = spelled.name[len(family) :] if family else ""
        if type_name == HISTOGRAM and not suffix:
            return None
        labels, kind = spelled.labels, KINDS[type_name]
        kept: SpellingData
        if type_name == HISTOGRAM:
            part, bound = PARTS[suffix], 0.0
            if part == BUCKET:
                bound = prometheus_text.number(dict(labels).get("le", "no label le"))
                labels = tuple(label for label in labels if label[0] != "le")
            number = self._series_number(page, context, family, Kind.HISTOGRAM, labels)
            kept = (number, part, bound)
        elif suffix == "_created":
            whole = f"{family}_total" if type_name == "counter" else f"{family}_count"
            number = self._series_number(page, context, whole, kind, labels)
            kept = (number, CREATED, 0.0)
        else:
            number = kept = self._series_number(page, context, spelled.name, kind, labels)
        self.interner.remember_spelling(number, self._contexts[context], spelling, kept)
        return kept

    def _admit_start_time(
        self, page: ParsedPage, context: Context, spelled: prometheus_text.ParsedSeries, spelling: str
    ) -> SpellingData:
        """Register the start time (`_created`) of a series of another family; otherwise like `_admit`."""
        type_name = context[1].removeprefix(START_TIMES)
        owner = f"{context[0].removesuffix('_created')}{'_total' if type_name == 'counter' else ''}"
        kind = KINDS[type_name]
        whole = f"{owner}_count" if type_name == "summary" else owner
        number = self._series_number(page, (owner, type_name), whole, kind, spelled.labels)
        kept = (number, START_TIME, 0.0)
        self.interner.remember_spelling(number, self._contexts[context], spelling, kept)
        return kept

    def _series_number(
        self, page: ParsedPage, context: Context, name: str, kind: Kind, labels: tuple[tuple[str, str], ...]
    ) -> int:
        """Return the number of a series, a new one if needed; several spellings, such as buckets, may have one."""
        known = self._contexts[context]
        canonical = self.labels((label for label in labels if kind is not Kind.SUMMARY or label[0] != "quantile"), kind)
        if kind is Kind.SUMMARY:  # OTLP's summaries have it last, and one series has one spelling
            quantile = self.labels(label for label in labels if label[0] == "quantile")
            canonical = b",".join(filter(None, (canonical, quantile)))
        number: int | None = known.get((name, canonical))
        if number is None:
            declared = context[0] or name
            part_of = context[0] if kind is Kind.SUMMARY and name != context[0] else ""
            described = self.shared_family(
                name, kind, page.helps.get(declared, ""), page.units.get(declared, ""), part_of
            )
            number = self.interner.add(NamedSeries(described, canonical))
            self.interner.remember_spelling(number, known, (name, canonical), number)
        return number
