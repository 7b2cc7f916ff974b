"""Messages in the shapes that real producers send, small ones, from a seeded generator."""

import json
import random
import struct
from collections.abc import Callable
from typing import Any

import cramjam
from google.protobuf import json_format
from tests.support.columnar.otlp_messages import Writer, request

from kernelcast.bridge.inputs.formats import TopicFormat
from kernelcast.bridge.inputs.remote_write.schema import LABEL, REQUEST, WRITE_REQUEST

NAMES = ("DCGM_FI_DEV_GPU_UTIL", "node_cpu_seconds_total", "up", "go_gc_duration_seconds", "a:b", "x_bucket")
KEYS = ("gpu", "UUID", "instance", "job", "le", "quantile", "path", "Hostname")
TEXTS = ("0", "", "GPU-1f3a", 'say "hi"', "C:\\dir", "line\nbreak", "größe", "a b,c=d", "}", "# {", "x" * 40)
NUMBERS = ("0", "1", "-1.5", "1e3", "NaN", "+Inf", "-Inf", "1.7976931348623157e+308", "5e-324", "9007199254740993")
STALE = struct.unpack("<d", (0x7FF0000000000002).to_bytes(8, "little"))[0]
IDS = {"spanId": "0a" * 8, "span_id": "0a" * 8, "traceId": "0b" * 16, "trace_id": "0b" * 16}
MAPPING = TopicFormat.model_validate(
    {
        "points": "$.hosts[*].metrics[*]",
        "name": "@.n",
        "value": "@.v",
        "time": "@.t",
        "labels": {"host": "^.host", "dc": "$.dc", "fixed": "yes"},
        "labels_from": ["@.tags"],
        "kind": "@.k",
    }
)


def labels(rng: random.Random) -> dict[str, str]:
    return {key: rng.choice(TEXTS) for key in rng.sample(KEYS, rng.randrange(4))}


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _series(name: str, pairs: dict[str, str]) -> str:
    inside = ",".join(f'{key}="{_escaped(value)}"' for key, value in pairs.items())
    return f"{name}{{{inside}}}" if inside else name


def _histogram(rng: random.Random) -> list[str]:
    pairs = {key: value for key, value in labels(rng).items() if key not in ("le", "quantile")}
    lines, running = ["# HELP rpc_seconds Time.", "# TYPE rpc_seconds histogram"], 0
    for bound in ("0.1", "1", "10", "+Inf"):
        running += rng.randrange(5)
        lines.append(f"{_series('rpc_seconds_bucket', {**pairs, 'le': bound})} {running}")
    return [
        *lines,
        f"{_series('rpc_seconds_sum', pairs)} {running / 3}",
        f"{_series('rpc_seconds_count', pairs)} {running}",
    ]


def prometheus(rng: random.Random) -> bytes:
    lines: list[str] = []
    openmetrics = rng.random() < 0.3
    for _ in range(rng.randrange(1, 4)):
        name = rng.choice(NAMES)
        if rng.random() < 0.5:
            lines.append(f"# TYPE {name} {rng.choice(('gauge', 'counter', 'untyped', 'summary', 'info'))}")
        if rng.random() < 0.2:
            lines += _histogram(rng)
        line = f"{_series(name, labels(rng))} {rng.choice(NUMBERS)}"
        if rng.random() < 0.3:
            line += f" {1.5e9 + rng.random()}" if openmetrics else f" {1_700_000_000_000 + rng.randrange(1000)}"
        lines.append(line + (' # {trace_id="a"} 1' if openmetrics and rng.random() < 0.2 else ""))
    return "\n".join([*lines, "# EOF"] if openmetrics else lines).encode() + b"\n"


def _exemplar(rng: random.Random) -> str:
    if rng.random() < 0.4:
        return ""
    inside = rng.choice(
        (f'trace_id="{"0b" * 16}"', 'trace_id="a",x="é\\n"', "", f'span_id="{"0a" * 8}"', f'a="{"x" * 90}"')
    )
    time = rng.choice(("", " 1.7e9", " 1700000000.123"))
    return f" # {{{inside}}} {rng.choice(NUMBERS)}{time}"


def openmetrics(rng: random.Random) -> bytes:
    """A page of counters, histograms and summaries with start times and exemplars, as samples or as families."""
    lines: list[str] = []
    for name in rng.sample(("jobs", "x_seconds", "a:b", "y_created"), rng.randrange(1, 4)):
        kind = rng.choice(("counter", "counter", "histogram", "summary"))
        classic = rng.random() < 0.3
        family = f"{name}_total" if classic and kind == "counter" else name
        lines += [f"# HELP {family} Help.", f"# TYPE {family} {kind}"]
        where = rng.choice(("", '{zone="a"}', '{zone="}"}'))
        if kind == "counter":
            lines.append(f"{name}_total{where} {rng.randrange(9)}{_exemplar(rng)}")
        elif kind == "histogram":
            inside = where[1:-1] + "," if where else ""
            lines += [f'{name}_bucket{{{inside}le="{le}"}} 3{_exemplar(rng)}' for le in ("1.0", "+Inf")]
        if kind != "counter":
            lines += [f"{name}_sum{where} 4", f"{name}_count{where} 3"]
        if classic:
            lines += [f"# HELP {name}_created {rng.choice(('Help.', 'Other.'))}", f"# TYPE {name}_created gauge"]
        if rng.random() < 0.8:
            lines.append(f"{name}_created{where} {rng.choice(('1.7e9', '1700000000.5', '17', 'NaN'))}")
    return "\n".join([*lines, "# EOF", ""]).encode()


def _influx_text(text: str, special: str) -> str:
    for character in special:
        text = text.replace(character, "\\" + character)
    return text.replace("\n", "")


def influx(rng: random.Random) -> bytes:
    lines = []
    for _ in range(rng.randrange(1, 4)):
        head = [_influx_text(rng.choice(("cpu", "mem", "disk io", "prometheus", "größe")), ", ")]
        head += [
            f"{_influx_text(key, ',= ')}={_influx_text(value, ',= ')}"
            for key, value in labels(rng).items()
            if value and not value.endswith("\\")
        ]
        values = ("1", "-2.5", "3i", "4u", "t", "false", '"text, = \\" x"', "1e3", "9223372036854775807i")
        names = ("usage", "n", "free\\ b")
        fields = [f"{rng.choice(names)}{i}={rng.choice(values)}" for i in range(rng.randrange(1, 4))]
        time = f" {1_700_000_000_000_000_000 + rng.randrange(1000)}" if rng.random() < 0.7 else ""
        lines.append(f"{','.join(head)} {','.join(fields)}{time}")
    return "\n".join(lines).encode()


def otlp_proto(rng: random.Random) -> bytes:
    """A message as protobuf writes it, or with fields shuffled, repeated, padded and grouped, which it also reads."""
    made = request(rng)
    return made.SerializeToString() if rng.random() < 0.5 else Writer(rng, rng.choice((0.02, 0.1))).message(made)


def otlp_json(rng: random.Random) -> bytes:
    names = rng.random() < 0.5
    shaped = json_format.MessageToDict(request(rng), preserving_proto_field_name=names)
    return json.dumps(_hexadecimal(shaped), ensure_ascii=rng.random() < 0.5).encode()


def _hexadecimal(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: IDS[key] if key in IDS else _hexadecimal(item) for key, item in value.items()}
    return [_hexadecimal(item) for item in value] if isinstance(value, list) else value


def _native(rng: random.Random, histogram: Any) -> None:
    histogram.schema = rng.choice((0, 3, -4, 8, -53, 9))
    spans = [
        (rng.randrange(-3, 4) if not i else rng.randrange(3), rng.randrange(1, 4)) for i in range(rng.randrange(3))
    ]
    counts = [rng.randrange(5) for _ in range(sum(length for _, length in spans))]
    for offset, length in spans:
        histogram.positive_spans.add(offset=abs(offset) if histogram.schema == -53 else offset, length=length)
    histogram.positive_deltas.extend(b - a for a, b in zip([0, *counts], counts, strict=False))
    if histogram.schema == -53:
        histogram.custom_values.extend(float(i) for i in range(16))
    histogram.count_int = sum(counts)
    histogram.sum = rng.choice((1.5, STALE))
    histogram.timestamp = rng.choice((0, 1_700_000_000_000))


def remote_write_1(rng: random.Random) -> bytes:
    made = WRITE_REQUEST()
    for _ in range(rng.randrange(1, 4)):
        series = made.timeseries.add()
        for key, value in {"__name__": rng.choice(NAMES), **labels(rng)}.items():
            series.labels.append(LABEL(name=key, value=value).SerializeToString())
        if rng.random() < 0.2:
            _native(rng, series.histograms.add())
        else:
            series.samples.add(value=rng.choice((0.0, 1.5, float("nan"), STALE)), timestamp=1_700_000_000_000)
    if rng.random() < 0.2:
        made.metadata.add(type=rng.randrange(8), metric_family_name=rng.choice(NAMES), help="what", unit="seconds")
    return bytes(made.SerializeToString())


def remote_write_2(rng: random.Random) -> bytes:
    made = REQUEST(symbols=[""])

    def symbol(text: str) -> int:
        if text not in made.symbols:
            made.symbols.append(text)
        return list(made.symbols).index(text)

    for _ in range(rng.randrange(1, 4)):
        series = made.timeseries.add(created_timestamp=rng.choice((0, 1_600_000_000_000)))
        for key, value in {"__name__": rng.choice(NAMES), **labels(rng)}.items():
            series.labels_refs.extend((symbol(key), symbol(value)))
        series.metadata.type = rng.randrange(8)
        series.metadata.help_ref = symbol("help")
        if rng.random() < 0.2:
            _native(rng, series.histograms.add())
        else:
            series.samples.add(value=rng.choice((0.0, 1.5, STALE)), timestamp=1_700_000_000_000)
    return bytes(made.SerializeToString())


def remote_write(rng: random.Random) -> bytes:
    return rng.choice((remote_write_1, remote_write_2))(rng)


def in_snappy(message: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(message))


def mapped(rng: random.Random) -> bytes:
    hosts = [
        {
            "host": rng.choice(TEXTS),
            "metrics": [
                {
                    "n": rng.choice((*NAMES, "", None)),
                    "v": rng.choice((1, 2.5, "3", True, None, [], "x")),
                    "t": rng.choice((None, 1_700_000_000, 1.7e9, "2023-11-14T22:13:20Z")),
                    "k": rng.choice(("gauge", "counter", "?")),
                    "tags": labels(rng),
                }
                for _ in range(rng.randrange(3))
            ],
        }
        for _ in range(rng.randrange(3))
    ]
    return json.dumps({"dc": "eu", "hosts": hosts}).encode()


SHAPES: dict[str, Callable[[random.Random], bytes]] = {
    "otlp_proto": otlp_proto,
    "otlp_json": otlp_json,
    "remote_write": remote_write,
    "prometheus": prometheus,
    "openmetrics": openmetrics,
    "influx": influx,
    "json": mapped,
}
"""By format."""
