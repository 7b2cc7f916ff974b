"""Cost of 100,000 series with full histories and a value a minute: reading, evaluation, forecasts, memory.

Processor seconds are those of one process; the goal is a machine of two cores. Values are simulated. Forecasts and
evaluations of all series are extrapolated from `SUBSET_SERIES` where there are more.
"""

import threading
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any, Final

import numpy as np
import pandas as pd
from benchmarks.predictor.memory.calendar import calendar_cost, calendar_lines
from benchmarks.predictor.memory.full import (
    GPUS,
    PARTITION,
    SERIES,
    FullMemory,
    Stopwatch,
    peak_bytes,
    resident_bytes,
)
from benchmarks.predictor.memory.processes import TimedLock, in_process
from benchmarks.predictor.options import Options

from kernelcast.columnar import Decoder, Resource, Sample, encode
from kernelcast.predictor.arrays import Floats, Ints
from kernelcast.predictor.cycle.forecasts import Forecasts
from kernelcast.predictor.passage.calibration import shipped
from kernelcast.predictor.passage.detector import evaluate
from kernelcast.predictor.passage.node import node_medians
from kernelcast.predictor.passage.series import SeriesBlocks, Traits
from kernelcast.predictor.series.saved.parts import unpack
from kernelcast.predictor.series.saved.writer import HEAD
from kernelcast.predictor.series.subjects import DURATION
from kernelcast.predictor.settings import HORIZONS_SECONDS, NANOSECONDS_PER_SECOND
from kernelcast.wire.catalogue import BY_PROMETHEUS_NAME
from kernelcast.wire.histogram import DurationTotals

CHUNK_ROWS: Final = 2048
BATCH_MESSAGES: Final = 500
MINUTES: Final = 5
SUBSET_SERIES: Final = 2048
FITS: Final = 60
FIT_POINTS: Final = 120
LOAD_ROW: Final = 1
"""Place of the power among the series of a GPU."""
GPU_SERIES: Final = 10
CONTENTION_SECONDS: Final = 20.0


class Exporters:
    """Messages of the exporters of a memory's series, a node each."""

    def __init__(self, memory: FullMemory) -> None:
        self._memory = memory
        windows = memory.engine.windows
        self._subjects = [subject for row in memory.rows.tolist() if (subject := windows.subject(row)) is not None]
        self._totals = {place: DurationTotals() for place, one in enumerate(self._subjects) if one.metric == DURATION}
        self._start_ns = memory.second * NANOSECONDS_PER_SECOND

    def minute(self) -> list[bytes]:
        """The messages of the next minute."""
        self._memory.second += 60
        values = self._memory.values(self._memory.rows)
        messages: list[bytes] = []
        node = GPUS * GPU_SERIES
        for begin in range(0, len(self._subjects), node):
            samples = [
                self._sample(place, float(values[place])) for place in range(begin, min(begin + node, len(values)))
            ]
            resource = Resource((("service.instance.id", str(begin // node)), ("service.name", "bench")))
            messages += [export.body for export in encode(resource, samples, scope="bench")]
        return messages

    def _sample(self, place: int, value: float) -> Sample:
        subject, now_ns = self._subjects[place], self._memory.second * NANOSECONDS_PER_SECOND
        metric = BY_PROMETHEUS_NAME[subject.metric]
        totals = self._totals.get(place)
        if totals is None:
            return Sample(metric, subject.labels, now_ns, value)
        totals.observe(round(value * NANOSECONDS_PER_SECOND))
        return Sample(metric, subject.labels, now_ns, totals, self._start_ns)


def measure(series: int, seed: int) -> dict[str, Any]:
    """All figures of one predictor's process."""
    Decoder.warm_up()
    memory = FullMemory(series, seed=seed)
    memory.fill()
    filled = resident_bytes()
    found: dict[str, Any] = {
        "reading": _reading(memory),
        "condensing": _condensing(memory),
        "evaluation": _evaluation(memory),
        "forecast": _forecast(memory),
        "saving": _saving(memory),
        "calendar": calendar_cost(memory),
        "reading_held_up": _held_up(memory),
    }
    found["resident_bytes"] = {"filled": filled, "after_all": resident_bytes(), "peak": peak_bytes()}
    return found


def _reading(memory: FullMemory) -> dict[str, float]:
    """Processor seconds to read one minute's messages, after the first one of every series."""
    exporters, engine = Exporters(memory), memory.engine
    seconds = []
    for _ in range(3):
        messages = exporters.minute()
        begun = time.process_time()
        for begin in range(0, len(messages), BATCH_MESSAGES):
            batch = messages[begin : begin + BATCH_MESSAGES]
            engine.take(batch, [PARTITION] * len(batch), {PARTITION: begin})
        seconds.append(time.process_time() - begun)
    return {"first_minute": seconds[0], "processor_seconds_a_minute": float(np.median(seconds[1:]))}


def _condensing(memory: FullMemory) -> dict[str, float]:
    """Mean of minutes of which one ends a block."""
    total = 0.0
    for _ in range(2 * MINUTES):
        memory.write_minute()
        begun = time.process_time()
        memory.engine.cycle.histories.advance(memory.rows)
        total += time.process_time() - begun
    return {"processor_seconds_a_minute": total / (2 * MINUTES)}


def _evaluation(memory: FullMemory) -> dict[str, float]:
    """Evaluation of all series at the end of a block, every five minutes."""
    rows = memory.rows[: 8 * SUBSET_SERIES]
    newest = memory.engine.cycle.histories.newest_block(rows)
    panel, numbers = 0.0, 0.0
    for chunk in _chunks(rows):
        begun = time.process_time()
        blocks, traits = _panel(memory, chunk, newest), _traits(memory, chunk)
        panel += time.process_time() - begun
        begun = time.process_time()
        evaluate(blocks, traits, calibration=shipped())
        numbers += time.process_time() - begun
    scale = len(memory.rows) / len(rows)
    return {
        "processor_seconds_a_pass": scale * (panel + numbers),
        "of_that_panels": scale * panel,
        "processor_seconds_a_minute": scale * (panel + numbers) / MINUTES,
        "series_measured": len(rows),
    }


def _panel(memory: FullMemory, rows: Ints, newest: int) -> SeriesBlocks:
    histories = memory.engine.cycle.histories
    mean, median = histories.blocks(rows, newest)
    power = np.minimum(rows // GPU_SERIES * GPU_SERIES + LOAD_ROW, len(memory.rows) - 1)
    loads, place = np.unique(power, return_inverse=True)
    load = histories.blocks(loads, newest)[0][place]
    process = histories.processes(rows, newest)
    version = np.full(process.shape, -1)
    last_hour, phase = (np.full(len(rows), one) for one in divmod(newest + 1, histories.hour_blocks))
    hours, load_hours = histories.hours(rows, newest), histories.hours(loads, newest)[place]
    node_metric = rows // (GPUS * GPU_SERIES) * GPU_SERIES + rows % GPU_SERIES
    node = node_medians(mean, np.where(memory.gauge[rows], node_metric, -1))
    return SeriesBlocks(mean, median, load, process, version, hours, phase, load_hours, last_hour - 1, node)


def _traits(memory: FullMemory, rows: Ints) -> Traits:
    gauge = memory.gauge[rows]
    return Traits(
        limit=np.where(gauge, 95.0, np.nan),
        baseline_ratio=np.full(len(rows), 1.2),
        below=np.zeros(len(rows), np.bool_),
        resolution=gauge.astype(np.float64),
        settling_blocks=np.full(len(rows), 12),
        reserves=np.zeros(len(rows), np.bool_),
    )


def _forecast(memory: FullMemory) -> dict[str, float]:
    """Published forecasts of the default horizons with their quantiles, from two days of blocks and from hours."""
    rows = memory.rows[:SUBSET_SERIES]
    cycle = memory.engine.cycle
    forecasts = Forecasts(cycle.histories, cycle.block_seconds)
    newest = cycle.histories.newest_block(rows)
    watch = Stopwatch()
    forecasts.make(rows, np.zeros(len(rows), np.int64), newest, HORIZONS_SECONDS)
    each = watch.read()["processor_seconds"] / len(rows)
    return {
        "milliseconds_a_series": 1e3 * each,
        "processor_seconds_all": each * len(memory.rows),
        "series_measured": len(rows),
    }


def _saving(memory: FullMemory) -> dict[str, float]:
    """Processor seconds to save a snapshot, once all pages have been written."""
    while not _covered(memory):
        pass
    total = 0.0
    for _ in range(MINUTES):
        memory.write_minute()
        begun = time.process_time()
        for _ in memory.engine.save(PARTITION):
            pass
        total += time.process_time() - begun
    return {"processor_seconds_a_minute": total / MINUTES}


def _covered(memory: FullMemory) -> bool:
    """Save a snapshot; whether all pages have been written by now."""
    heads = [value for key, value in memory.engine.save(PARTITION) if key == HEAD and value is not None]
    return bool(unpack(heads[-1]).text["covered"])


def _held_up(memory: FullMemory) -> dict[str, Any]:
    """Time that the reading thread waits for the lock while another thread evaluates and saves all the time."""
    lock = TimedLock()
    engine = memory.engine
    engine.states.rows.lock = lock  # type: ignore[assignment]
    engine.cycle.histories._lock = lock  # type: ignore[assignment]  # noqa: SLF001  measured from outside
    ending = threading.Event()

    def evaluate_and_save() -> None:
        while not ending.is_set():
            memory.minute()
            for _ in engine.save(PARTITION):
                pass
            for chunk in _chunks(memory.rows):
                if ending.is_set():
                    return
                blocks, traits = (
                    _panel(memory, chunk, engine.cycle.histories.newest_block(chunk)),
                    _traits(memory, chunk),
                )
                evaluate(blocks, traits, calibration=shipped())

    worker = threading.Thread(target=evaluate_and_save, name="cycle")
    worker.start()
    end = time.monotonic() + CONTENTION_SECONDS
    while time.monotonic() < end:
        with lock:
            pass
        time.sleep(0.005)
    ending.set()
    worker.join()
    waited = np.array(lock.waited_seconds[threading.current_thread().name])
    return {"waited_ms": _quantiles(waited), "worked_ms": _quantiles(np.array(lock.worked_seconds))}


def _quantiles(seconds: Floats) -> dict[str, float]:
    return {
        "p50": 1e3 * float(np.median(seconds)),
        "p99": 1e3 * float(np.quantile(seconds, 0.99)),
        "max": 1e3 * float(seconds.max()),
    }


def _chunks(rows: Ints) -> list[Ints]:
    return [rows[begin : begin + CHUNK_ROWS] for begin in range(0, len(rows), CHUNK_ROWS)]


def loops(seed: int) -> dict[str, float]:
    """Milliseconds of processor time of one fit with an interval, one series after the other, at n = 120."""
    rng = np.random.default_rng(seed)
    series = 70 + np.cumsum(rng.normal(0.01, 0.3, (FITS, FIT_POINTS)), axis=1)
    found = {}
    for name, fit in _LOOPS.items():
        try:
            fit(series[0])
        except ModuleNotFoundError:
            continue
        watch = Stopwatch()
        for one in series:
            fit(one)
        found[name] = 1e3 * watch.read()["processor_seconds"] / FITS
    return found


def _statsmodels(values: Floats) -> None:
    from statsmodels.tsa.exponential_smoothing.ets import ETSModel  # noqa: PLC0415  only this process needs it

    fitted = ETSModel(pd.Series(values), error="add", trend="add", damped_trend=True).fit(disp=False)
    fitted.get_prediction(len(values), len(values) + FIT_POINTS - 1).summary_frame(alpha=0.05)


def _statsforecast(values: Floats) -> None:
    auto_ets = import_module("statsforecast.models").AutoETS  # compared where it is installed
    auto_ets(model="AAN", season_length=1).forecast(values, FIT_POINTS, level=[95])


_LOOPS: Final[dict[str, Callable[[Floats], None]]] = {"statsmodels": _statsmodels, "statsforecast": _statsforecast}


def run(options: Options) -> dict[str, Any]:
    """All figures."""
    series = options.series or SERIES
    figures = in_process(measure, series, options.seed)
    figures["loops_ms_a_fit"] = in_process(loops, options.seed)
    return {"benchmark": "scale", "series": series, "seed": options.seed, **figures}


def table(result: dict[str, Any]) -> str:
    """The figures beside their goals."""
    parts = ("reading", "condensing", "evaluation")
    minutely = {name: result[name]["processor_seconds_a_minute"] for name in (*parts, "saving")}
    waited, worked = result["reading_held_up"]["waited_ms"], result["reading_held_up"]["worked_ms"]
    resident = result["resident_bytes"]
    lines = [
        ("figure", "measured", "goal"),
        ("series", f"{result['series']:,}", ""),
        ("processor seconds a minute: reading, condensing, evaluation", _sum(minutely, parts), "10"),
        *((f"  {name.replace('_', ' ')}", f"{minutely[name]:.2f}", "") for name in parts),
        (
            "  evaluation of all series at the end of a block: probability and time of a breach",
            f"{result['evaluation']['processor_seconds_a_pass']:.1f}",
            "",
        ),
        ("saving, processor seconds a minute", f"{minutely['saving']:.2f}", ""),
        *calendar_lines(result["calendar"]),
        (
            "published forecasts, if every series had one, processor seconds",
            f"{result['forecast']['processor_seconds_all']:.0f}",
            "300",
        ),
        ("  milliseconds a series", f"{result['forecast']['milliseconds_a_series']:.2f}", ""),
        (
            "resident memory, MB, after all / largest",
            f"{resident['after_all'] / 1e6:.0f} / {resident['peak'] / 1e6:.0f}",
            "1500",
        ),
        ("reading held up, ms by the clock, p50 / p99 / max", _three(waited), "100"),
        ("  processor time under the lock, ms, p50 / p99 / max", _three(worked), ""),
        *(
            (f"{name} in a loop, n = {FIT_POINTS}, ms a fit with interval", f"{each:.1f}", "")
            for name, each in result["loops_ms_a_fit"].items()
        ),
        *(
            (f"  fits a minute of one processor, {name}", f"{60_000 / each:,.0f}", "")
            for name, each in result["loops_ms_a_fit"].items()
        ),
    ]
    width = max(len(line[0]) for line in lines)
    return "\n".join(f"{name:<{width}}  {figure:>22}  {goal:>5}".rstrip() for name, figure, goal in lines)


def _sum(minutely: dict[str, float], parts: tuple[str, ...]) -> str:
    return f"{sum(minutely[name] for name in parts):.2f}"


def _three(quantiles: dict[str, float]) -> str:
    return " / ".join(f"{quantiles[name]:.1f}" for name in ("p50", "p99", "max"))
