"""Formats by name: the bridge's own, and those that installed distributions add as entry points.

A distribution of a site names its format in its `pyproject.toml`:

    [project.entry-points."kernelcast.bridge.formats"]
    csv = "site_formats:CsvLines"

The object is called with the topic's `TopicFormat` and the keyword arguments `limits` and, in tests, `max_identities`;
it returns a `protocol.Input`. `parsing.Parsing` is a base class that needs `read` alone.
"""

from importlib.metadata import EntryPoint, entry_points
from typing import Final

GROUP: Final = "kernelcast.bridge.formats"
OTLP_PROTO: Final = "otlp_proto"
OTLP_JSON: Final = "otlp_json"
REMOTE_WRITE: Final = "remote_write"
PROMETHEUS: Final = "prometheus"
INFLUX: Final = "influx"
JSON: Final = "json"
_ROOM: Final = "kernelcast.bridge.inputs"
OWN: Final = {
    name: EntryPoint(name, f"{_ROOM}.{value}", GROUP)
    for name, value in {
        OTLP_JSON: "json.otlp:OtlpJson",
        REMOTE_WRITE: "remote_write.requests:RemoteWrite",
        PROMETHEUS: "prometheus.text:PrometheusText",
        INFLUX: "influx:InfluxLines",
        JSON: "json.mapping:JsonMapped",
    }.items()
}
"""Besides `otlp_proto`, which `columnar.Decoder` reads. A distribution cannot replace one of them."""


def found(name: str) -> EntryPoint:
    """Return the entry point of a format other than `otlp_proto`.

    Raises:
        KeyError: No installed distribution has it.
    """
    if name in OWN:
        return OWN[name]
    for entry in entry_points(group=GROUP, name=name):
        return entry
    raise KeyError(name)


def names() -> list[str]:
    """Return the names of all formats, the bridge's own first."""
    added = sorted({entry.name for entry in entry_points(group=GROUP)} - {OTLP_PROTO, *OWN})
    return [OTLP_PROTO, *OWN, *added]
