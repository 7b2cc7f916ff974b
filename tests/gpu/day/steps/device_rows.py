"""The exporter's device rows: beside `nvidia-smi -q`, and under loads whose operations and bytes are known."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.gpu.day.driver import REPOSITORY
from tests.gpu.day.node import PROGRAMS, run
from tests.gpu.day.report import Skipped, StepReport

from kernelcast.exporter.nvml.recorded import open_recording
from kernelcast.exporter.nvml.sampling.fields import GPM_METRICS
from kernelcast.exporter.nvml.sampling.fields import ROWS as KNOWN
from kernelcast.exporter.nvml.sampling.nvlink import ALL
from kernelcast.exporter.nvml.sampling.reading import GpuReading
from kernelcast.exporter.nvml.sampling.sampler import Sampler, SamplerOptions

CAPTURE = "nvidia-smi/nvidia-h200__590.48.01.txt"
TURNS = 3
SECONDS_OF_A_LOAD = 4.5
RATIOS: dict[str, dict[str, tuple[float, float]]] = {
    "fp32": {"DCGM_FI_PROF_PIPE_FP32_ACTIVE": (0.5, 1.0), "DCGM_FI_PROF_GR_ENGINE_ACTIVE": (0.95, 1.0)},
    "bf16": {"DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": (0.5, 1.0)},
    "fp64": {"DCGM_FI_PROF_PIPE_FP64_ACTIVE": (0.5, 1.0)},
    "dram": {"DCGM_FI_PROF_DRAM_ACTIVE": (0.7, 1.0)},
    "idle": {"DCGM_FI_PROF_GR_ENGINE_ACTIVE": (0.0, 0.05)},
}
"""Bounds of ratios by load."""
RATES = {"h2d": "DCGM_FI_PROF_PCIE_RX_BYTES", "d2h": "DCGM_FI_PROF_PCIE_TX_BYTES"}
"""Rows that must be the load's own bytes a second; headers and flow control add some per cent."""
STEADY = ("Util", "CLOCK", "TEMP")
"""Parts of names of rows that may move by 8 within a second."""


def nvml(report: StepReport) -> None:
    """Every row of the exporter lies between `nvidia-smi -q` before it and after it, under load."""
    options = SamplerOptions(rows=tuple(KNOWN), nvlink=ALL, names=False)
    capture = _capture() if report.rehearsal else None
    captures = report.folder / "captures"
    captures.mkdir(exist_ok=True)
    with _load(report, "25", "bf16"):
        live = Sampler(open_recording(str(capture)) if capture else _pynvml(), options).start()
        agree, differ, only_theirs, errors, rows = _turns(live, options, captures, capture)
    report.check("values lie between nvidia-smi's", not differ, agree=len(agree), rows=rows, differ=differ)
    report.check("no row is nvidia-smi's alone", not only_theirs, only_in_nvidia_smi=only_theirs)
    report.check("no call of NVML failed", not errors, errors=errors)
    if not report.rehearsal and not differ:
        text = f"{len(agree)} of {rows} rows are in `nvidia-smi -q` as well, and agree, {TURNS} times under load"
        report.measured("Device rows beside `nvidia-smi -q`", text)


def _turns(
    live: Sampler, options: SamplerOptions, captures: Path, capture: Path | None
) -> tuple[set[str], dict[str, Any], list[str], list[Any], int]:
    agree: set[str] = set()
    differ: dict[str, Any] = {}
    only_theirs: set[str] = set()
    errors: list[Any] = []
    rows = 0
    live.sample(time.time_ns())
    for turn in range(1 if capture else TURNS):
        before = _nvidia_smi(captures / f"{turn}-before.txt", options, capture)
        time.sleep(0.3)
        reading = live.sample(time.time_ns())
        after = _nvidia_smi(captures / f"{turn}-after.txt", options, capture)
        errors += reading.errors
        gpu = reading.gpus[0]
        rows = len(gpu.values)
        only_theirs |= set(before.values) - set(gpu.values)
        for row, value in gpu.values.items():
            ends = [side.values[row] for side in (before, after) if row in side.values]
            if len(ends) == 2:
                slack = max(0.12 * max(map(abs, ends)), 8 if any(word in row for word in STEADY) else 1)
                if min(ends) - slack <= value <= max(ends) + slack:
                    agree.add(row)
                else:
                    differ[row] = [ends[0], value, ends[1]]
    live.close()
    return agree - set(differ), differ, sorted(only_theirs), errors, rows


def gpm(report: StepReport) -> None:
    """GPM's rows under loads whose operations and bytes are known."""
    rows = tuple(metric.row.otlp_name for metric in GPM_METRICS)
    sampler = Sampler(_pynvml(), SamplerOptions(rows=rows, processes=False)).start()
    ratios, rates = [], []
    for name, rate, values in _under_loads(sampler):
        expected = {**RATIOS.get(name, {})}
        if name in RATES:
            expected[RATES[name]] = (0.7 * rate, 1.4 * rate)
        got = {row: values.get(row) for row in expected}
        holds = all(low <= (got[row] or 0.0) <= high for row, (low, high) in expected.items())
        report.check(name, holds, **{name: {"rate": rate, "got": got, "bounds": expected}})
        if holds and name in RATES:
            rates.append(f"{name} {values[RATES[name]] / rate:.2f}")
        elif holds:
            ratios.append(f"{name} at {rate:.3g}/s: {', '.join(f'`{row}` {got[row]:.2f}' for row in expected)}")
    sampler.close()
    if ratios:
        report.measured("Profiling rows through GPM, under known loads", "; ".join(ratios))
    if rates:
        report.measured("Unit of GPM's PCIe rates", f"bytes/s: {', '.join(rates)} of the bytes copied")


def _under_loads(sampler: Sampler) -> Iterator[tuple[str, float, dict[str, float]]]:
    """Yields each load's name, its rate and the rows over about the same seconds."""
    loads = [*RATIOS, *RATES]
    command = [sys.executable, "-m", f"{PROGRAMS}.load", str(SECONDS_OF_A_LOAD), *loads]
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        rates: dict[str, list[float]] = {}
        for line in process.stdout:
            name, _, rate = line.partition(" ")
            rates.setdefault(name, []).append(float(rate))
            if len(rates[name]) == 1:
                sampler.sample(time.time_ns())
            elif len(rates[name]) == 3:
                gpu = sampler.sample(time.time_ns()).gpus[0]
                yield name, sum(rates[name][1:]) / 2, {row: float(value) for row, value in gpu.values.items()}


@contextmanager
def _load(report: StepReport, *arguments: str) -> Iterator[None]:
    """Keep the GPU busy during the block; nothing in a rehearsal."""
    if report.rehearsal:
        yield
        return
    command = [sys.executable, "-m", f"{PROGRAMS}.load", *arguments]
    process = subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        yield
    finally:
        process.kill()
        process.wait()


def _nvidia_smi(path: Path, options: SamplerOptions, capture: Path | None) -> GpuReading:
    """Keep the output of `nvidia-smi -q`, and read it as the exporter reads a capture."""
    text = capture.read_text() if capture else run(["nvidia-smi", "-q"], 20).stdout
    path.write_text(text)
    sampler = Sampler(open_recording(str(path)), options).start()
    gpu = sampler.sample(time.time_ns()).gpus[0]
    sampler.close()
    return gpu


def _capture() -> Path:
    data = Path(os.environ.get("KERNELCAST_SHARED_DATA", REPOSITORY.parent / "shared" / "data"))
    if not (data / CAPTURE).exists():
        raise Skipped(f"no GPU, and no capture of one: {CAPTURE} is not in the recordings' folder")
    return data / CAPTURE


def _pynvml() -> Any:
    try:
        import pynvml
    except ImportError as error:
        raise Skipped(f"pynvml is not installed: pip install 'kernelcast[exporter]' ({error})") from error
    return pynvml
