"""The format of each topic: the setting `bridge.formats`, and the declarative mapping of JSON in it."""

import re
from functools import cached_property
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BeforeValidator, Field, field_validator, model_validator

from kernelcast.bridge.inputs import registry
from kernelcast.bridge.inputs.json_paths import JsonPath
from kernelcast.bridge.inputs.registry import INFLUX, JSON, OTLP_PROTO
from kernelcast.runtime.settings.service import Remedy, Section
from kernelcast.wire.catalogue import Kind
from kernelcast.wire.errors import ConfigurationError

NANOSECONDS: Final = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
"""Of a timestamp's unit, by its name."""
Unit = Literal["ns", "us", "ms", "s"]

KINDS: Final = {
    "gauge": Kind.GAUGE,
    "counter": Kind.COUNTER,
    "info": Kind.INFO,
    "unknown": Kind.UNKNOWN,
    "untyped": Kind.UNKNOWN,
}
Texts = Annotated[tuple[str, ...], BeforeValidator(lambda given: (given,) if isinstance(given, str) else given)]
"""Paths or constants, of which the first that is there counts; one may be written without brackets."""
_PATH: Final = re.compile(r"[$@^]")
_LABEL: Final = re.compile(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*", re.ASCII)
_MAPPING: Final = (
    "points",
    "name",
    "value",
    "values",
    "increments",
    "time",
    "time_unit",
    "labels",
    "labels_from",
    "labels_without",
    "kind",
    "help",
    "unit",
    "lines",
)
"""The settings that only the format json has."""


class TopicFormat(Section):
    """The format of a topic's messages; a name alone (`influx`) is short for `{format: influx}`.

    The settings after `format` and `precision` map JSON of any shape to points. Text that begins with `$` (the whole
    message), `@` (the point) or `^` (the object that encloses the point) is a path; other text is a constant.

    Attributes:
        format: A name of `registry`; json is the mapping below.
        precision: Influx: the unit of timestamps.
        points: Where the points are: `$.metrics[*]`; by default the message itself, or each element of it if it is an
            array.
        name: The metric's name; of several, the first that is there.
        value: Its value: a number, a boolean, or text that is a number; a path. Of several paths the first that leads
            to a value counts: `[@.value, @.val]`, or by kind, `{counter: @.counter.value, gauge: @.gauge.value}`.
        values: An object in which every number is a series, its name joined to `name` by `_`; beside `value`, for
            points without that.
        increments: Paths with the text by which a point says that its value is an increment, such as
            `{@.kind: incremental}`. Its message is refused: a bridge keeps totals that a Collector has made.
        time: When it was measured, a number or RFC 3339 text; a path, or several. Without, the message's append time
            counts.
        time_unit: The unit of `time`, if it is a number.
        labels: For each label a path or a constant; a missing value makes no label.
        labels_from: Objects in which every text, number and boolean is a label, except those that are the name, the
            value or the time of the point, and names that begin with two underscores; paths.
        labels_without: Members of these objects that become no labels.
        kind: gauge, counter, info or unknown; not beside a `value` by kind.
        help: One line for people.
        unit: Prometheus' word for the unit, such as seconds.
        lines: Whether each line of a message is one JSON object (NDJSON).
    """

    format: str = JSON
    precision: Unit = "ns"
    points: str = "$"
    name: Texts = ()
    value: Texts | dict[str, Texts] = ()
    values: Texts = ()
    increments: dict[str, str] = Field(default_factory=dict)
    time: Texts = ()
    time_unit: Unit = "s"
    labels: Annotated[dict[str, str], Remedy("write the label's name, a colon, and a path or text")] = Field(
        default_factory=dict
    )
    labels_from: tuple[str, ...] = ()
    labels_without: tuple[str, ...] = ()
    kind: str = "unknown"
    help: str = ""
    unit: str = ""
    lines: bool = False

    @model_validator(mode="before")
    @classmethod
    def _a_name_alone_is_a_format(cls, value: Any) -> Any:
        return {"format": value} if isinstance(value, str) else value

    @field_validator("format")
    @classmethod
    def _format_must_be_there(cls, name: str) -> str:
        if name != OTLP_PROTO:
            try:
                registry.found(name).load()
            except KeyError:
                raise ValueError(
                    f"it must be one of {', '.join(registry.names())}, or that of an entry point"
                ) from None
            except (ImportError, AttributeError) as error:
                raise ValueError(f"its entry point cannot be loaded: {error}") from None
        return name

    @field_validator("points", "kind", "help", "unit")
    @classmethod
    def _paths_must_be_paths(cls, text: str) -> str:
        return _checked(text)

    @field_validator("name")
    @classmethod
    def _names_must_be_paths_or_constants(cls, texts: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(_checked(text) for text in texts)

    @field_validator("points")
    @classmethod
    def _points_begin_at_the_message(cls, text: str) -> str:
        if not text.startswith("$"):
            raise ValueError("it must begin with $, the whole message; write '$.metrics[*]', for instance")
        return text

    @field_validator("value")
    @classmethod
    def _values_must_be_read(cls, given: tuple[str, ...] | dict[str, tuple[str, ...]]) -> Any:
        if isinstance(given, dict):
            for kind, texts in given.items():
                if kind not in KINDS:
                    raise ValueError(f"{kind!r} is no kind; the kinds are {', '.join(KINDS)}")
                _checked_paths(texts)
            return given
        return _checked_paths(given)

    @field_validator("values", "time", "labels_from")
    @classmethod
    def _must_be_read(cls, texts: tuple[str, ...]) -> tuple[str, ...]:
        return _checked_paths(texts)

    @field_validator("increments")
    @classmethod
    def _increments_must_be_read(cls, conditions: dict[str, str]) -> dict[str, str]:
        _checked_paths(tuple(conditions))
        return conditions

    @field_validator("labels")
    @classmethod
    def _labels_must_be_legal(cls, labels: dict[str, str]) -> dict[str, str]:
        for label, text in labels.items():
            if not _LABEL.fullmatch(label):
                raise ValueError(f"{label!r} is no label; letters, digits and _ make one, and no __ begins it")
            _checked(text)
        return labels

    @field_validator("kind")
    @classmethod
    def _kind_must_be_known(cls, text: str) -> str:
        if not _PATH.match(text) and text not in KINDS:
            raise ValueError(f"it must be one of {', '.join(KINDS)}, or a path")
        return text

    @model_validator(mode="after")
    def _settings_of_other_formats_are_refused(self) -> Self:
        has_precision = self.precision != "ns" or (not self.name and "precision" in self.model_fields_set)
        if self.format != INFLUX and has_precision:
            raise ValueError(
                "precision can only be set for the format influx; write format: influx, or leave precision out; the "
                "unit of a JSON mapping's time is time_unit"
            )
        return self

    @model_validator(mode="after")
    def _the_mapping_must_be_complete(self) -> Self:
        if self.format != JSON:
            fields = type(self).model_fields
            defaults = {name: fields[name].get_default(call_default_factory=True) for name in _MAPPING}
            unused = [name for name, default in defaults.items() if getattr(self, name) != default]
            if unused:
                raise ValueError(f"{', '.join(unused)} can only be set for the format json; leave format out, or them")
        elif not self.name:
            raise ValueError("name is missing; give the metric's name, or a path to it: name: '@.metric'")
        elif not self.value and not self.values:
            raise ValueError("value or values must be there; write value: '@.value', for instance")
        elif isinstance(self.value, dict) and "kind" in self.model_fields_set:
            raise ValueError("kind is set beside a value by kind; leave kind out")
        return self

    @cached_property
    def points_path(self) -> JsonPath:
        """Path to the points."""
        return JsonPath.parse(self.points)


def _checked_paths(texts: tuple[str, ...]) -> tuple[str, ...]:
    for text in texts:
        if not _PATH.match(text):
            raise ValueError(f"{text!r} must be a path; write '@.{text}'")
        _checked(text)
    return texts


def _checked(text: str) -> str:
    if _PATH.match(text):
        try:
            path = JsonPath.parse(text)
        except ConfigurationError as error:
            raise ValueError(str(error)) from None
        if not text.startswith("$") and not path.is_single:
            raise ValueError("only the path of the points may have *; name a member, or an index")
    return text
