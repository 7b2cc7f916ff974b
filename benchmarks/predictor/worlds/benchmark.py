"""`python -m benchmarks.predictor worlds`: all worlds, through the code of `kernelcast backtest`."""

from typing import Any, Final

from benchmarks.predictor.options import Options
from benchmarks.predictor.worlds import more, others, own
from benchmarks.predictor.worlds.run import score
from benchmarks.predictor.worlds.run import table as table_of
from benchmarks.predictor.worlds.series import World

SERIES: Final = 20
DAYS: Final = 15.0


def worlds() -> tuple[World, ...]:
    """All worlds."""
    return (*own.WORLDS, *others.WORLDS, *more.WORLDS.values())


def run(options: Options) -> dict[str, Any]:
    """Score all worlds."""
    return {"simulated": True, "worlds": score(worlds(), seed=options.seed, series=options.series or SERIES, days=DAYS)}


def table(result: dict[str, Any]) -> str:
    """Text for people."""
    return table_of(result["worlds"])
