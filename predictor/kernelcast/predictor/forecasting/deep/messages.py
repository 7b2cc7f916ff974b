"""Messages between the predictor and its worker processes, as JSON: a window of one series there, its models back."""

import json
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

import numpy as np

from kernelcast.predictor.arrays import Floats
from kernelcast.predictor.forecasting.deep.models import LinearModel

MODELS: Final = ("ets", "components")
"""Exponential smoothing with a damped trend; a random walk with a deviation that dies out."""


class FitOutcome(StrEnum):
    """Result of one fit."""

    FITTED = "fitted"
    NOT_CONVERGED = "not_converged"
    FAILED = "failed"
    NOT_FITTABLE = "not_fittable"
    """The window is constant or too short."""


@dataclass(frozen=True, slots=True, eq=False)
class FitRequest:
    """A window of one series.

    Attributes:
        values: Shape (t,), oldest first, NaN for gaps.
        last: Number of the last interval.
        season: Intervals; 0 for none.
    """

    values: Floats
    last: int
    season: int

    def encode(self) -> bytes:
        """Encode the request."""
        return json.dumps({"values": self.values.tolist(), "last": self.last, "season": self.season}).encode()

    @classmethod
    def decode(cls, message: bytes) -> "FitRequest":
        """Decode a request."""
        document = json.loads(message)
        return cls(np.array(document["values"], np.float64), int(document["last"]), int(document["season"]))


@dataclass(frozen=True, slots=True, eq=False)
class FitAnswer:
    """The models of a window.

    Attributes:
        models: Those that were fitted.
        outcomes: By name of the model.
        seconds: Processor time.
    """

    models: tuple[LinearModel, ...] = ()
    outcomes: dict[str, FitOutcome] = field(default_factory=dict)
    seconds: float = 0.0

    def encode(self) -> bytes:
        """Encode the answer."""
        document = {
            "models": [model.to_json() for model in self.models],
            "outcomes": self.outcomes,
            "seconds": self.seconds,
        }
        return json.dumps(document).encode()

    @classmethod
    def decode(cls, message: bytes) -> "FitAnswer":
        """Decode an answer.

        Raises:
            ValueError: It is none, or one of another version.
        """
        try:
            document = json.loads(message)
            models = tuple(LinearModel.from_json(each) for each in document["models"])
            outcomes = {str(name): FitOutcome(outcome) for name, outcome in document["outcomes"].items()}
            return cls(models, outcomes, float(document["seconds"]))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"no answer of this version: {error!r}") from error
