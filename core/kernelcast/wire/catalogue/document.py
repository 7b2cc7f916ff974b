"""Writes `docs/metrics.md` from the catalogue: `python -m kernelcast.wire.catalogue.document` prints it.

`make docs` runs it in a checkout, and `make lint` compares its output with the file.
"""

import sys
from collections.abc import Iterable, Iterator
from types import MappingProxyType
from typing import Final

from kernelcast.wire.catalogue import (
    OWN_NAMES,
    bridge,
    exporter,
    forecast,
    forecast_scores,
    inference,
    kernel,
    predictor,
    runtime,
)
from kernelcast.wire.catalogue.devices import (
    accelerator,
    dcgm_exporter,
    device,
    energy,
    gpu,
    health,
    nccl,
    nvlink,
    otel,
    profiling,
    tpu,
)
from kernelcast.wire.catalogue.model import Metric

_ENGINES: Final = (
    "vLLM, SGLang, TensorRT-LLM and Triton under one naming: recorded by rules from an engine's own series, or read by "
    "the exporter (`exporter.scrape`). A figure that an engine lacks is absent."
)
_LIKE_DCGM: Final = "Names, units and labels of dcgm-exporter, so that existing dashboards and alerts work unchanged."
_OTEL: Final = (
    "Beside those of DCGM with `exporter.naming: both`, in line with OpenTelemetry's semantic conventions 1.44.0 for "
    "hardware, all in development there. `hw.id` is the UUID; Prometheus has `_` for each dot of a label. "
    "`hw.gpu.memory.limit`, `hw.gpu.memory.usage` and `hw.status`, there UpDownCounters, are gauges here."
)


def _names(labels: Iterable[str]) -> str:
    return ", ".join(f"`{label}`" for label in labels)


_SECTIONS: Final = MappingProxyType(
    {
        "Kernels and programs": (
            "Activity of programs on their GPUs. The node's exporter writes these; the bridge exposes them.",
            kernel.ROWS,
        ),
        "Energy": ("Estimates: the measured energy of a whole GPU, divided by GPU time.", energy.ROWS),
        "Devices": (
            f"{_LIKE_DCGM} A counters table may add labels: {_names(device.OPT_IN_LABELS)}.",
            device.ROWS,
        ),
        "Devices, profiling": (
            "From NVML's GPM, on Hopper and later; `kernelcast_gpu_field_absent` has the reason for absent rows.",
            profiling.ROWS,
        ),
        "Devices, computed as by dcgm-exporter": (
            "With dcgm-exporter's names, labels and meaning; written if the counters table names them.",
            dcgm_exporter.ROWS,
        ),
        "Devices, beyond DCGM": ("Data for which DCGM has no suitable row.", (*gpu.ROWS, gpu.GPU_UP, gpu.GPU_DETACHED)),
        "Devices, under OpenTelemetry's names": (_OTEL, otel.ROWS),
        "Fabric, repairs, SRAM": ("Read once a minute.", health.ROWS),
        "NVLinks": ("One series for each link; `exporter.nvlink_links` selects the metrics.", nvlink.ROWS),
        "NCCL": (
            "From the files of NVIDIA's NCCL Inspector; off unless `exporter.nccl_inspector.directory` is set.",
            nccl.ROWS,
        ),
        "TPUs": (
            "From the metric service of the program that uses the TPU; absent while no program uses it.",
            tpu.ROWS,
        ),
        "Inference engines": (
            _ENGINES,
            inference.ROWS,
        ),
        "Accelerators": ("For dashboards of mixed fleets.", accelerator.ROWS),
        "Forecasts, degradation and hints": (
            "The predictor writes these; the bridge exposes them.",
            forecast.ROWS,
        ),
        "Scores of forecasts": (
            "The predictor compares its published forecasts with the values that followed; the bridge exposes these.",
            forecast_scores.ROWS,
        ),
        "Every daemon": ("On each daemon's own `/metrics`; these do not travel through Kafka.", runtime.ROWS),
        "Exporter": ("On the exporter's own `/metrics`.", exporter.ROWS),
        "Bridge": ("On the bridge's own `/metrics`.", bridge.ROWS),
        "Predictor": ("On the predictor's own `/metrics`.", predictor.ROWS),
    }
)
_RENAMED: Final = (
    "DCGM 4.6 has renamed fields and kept their values. A series has the name that the counters table asks for "
    "(`exporter.counters_file`), on the exporter's page, on Kafka and on the bridge's page. The predictor reads all of "
    "them, and recording rules give them our names, which all other rules and the dashboards read."
)
_PREAMBLE: Final = """\
# Metrics

<!-- Made by `python -m kernelcast.wire.catalogue.document`; change core/kernelcast/wire/catalogue instead. -->

Every metric that kernelcast emits. Series that passed through Kafka also have the labels `job` (the measuring service)
and `instance` (its host), so scrape the bridge with `honor_labels: true`. `source` is `replayed`, `simulated` or `cpu`
on series that do not come from a live GPU, and absent on all others. A histogram has `_bucket`, `_sum`, `_count`.
"""


def document() -> str:
    """The whole page, in Markdown."""
    sections = (_section(title, purpose, rows) for title, (purpose, rows) in _SECTIONS.items() if rows)
    return "\n".join([_PREAMBLE, *sections, _other_names()])


def _other_names() -> str:
    head = (
        "## Other names of DCGM's rows",
        "",
        _RENAMED,
        "",
        "| DCGM's other name | here |",
        "|---|---|",
    )
    return "\n".join([*head, *(f"| `{other}` | `{own}` |" for other, own in OWN_NAMES.items()), ""])


def _section(title: str, purpose: str, rows: Iterable[Metric]) -> str:
    head = "| Prometheus name | kind | OTLP name, unit | labels | meaning | source |\n|---|---|---|---|---|---|"
    return "\n".join([f"## {title}", "", purpose, "", head, *_lines(rows), ""])


def _lines(rows: Iterable[Metric]) -> Iterator[str]:
    for row in rows:
        kind = row.kind.value if row.exposed else f"{row.kind.value}, not exposed"
        cells = (f"`{row.prometheus_name}`", kind, _wire(row), _labels(row), row.help, row.source)
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _wire(row: Metric) -> str:
    if not row.otlp_name:
        return ""
    return f"`{row.otlp_name}`" + (f" `{row.unit}`" if row.unit else "")


def _labels(row: Metric) -> str:
    return _names(row.labels)


if __name__ == "__main__":
    sys.stdout.write(document())
