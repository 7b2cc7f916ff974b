"""The list of steps in `day.json`, and the machine images on which a step must run."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

LIST: Final = Path(__file__).with_name("day.json")


class PlanError(Exception):
    """`day.json`, or the name of an image or a step, is wrong."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the day.

    Attributes:
        name: Its name in the results.
        function: Module and function, `package.module:function`, which takes a `StepReport`.
        limit_seconds: Time after which it is ended.
        needs: Requirements of `needs.py`; where one is missing, the step skips.
        has_double: Whether it runs in a rehearsal, with a double in place of the GPU.
    """

    name: str
    function: str
    limit_seconds: float
    needs: tuple[str, ...] = ()
    has_double: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """The steps in order of worth.

    Attributes:
        steps: All steps.
        must_run: Names of the steps that must run, by the name of a machine image.
        seconds: Longest day.
        second_seconds: Longest second run.
    """

    steps: tuple[Step, ...]
    must_run: Mapping[str, frozenset[str]]
    seconds: float
    second_seconds: float

    def chosen(self, names: Sequence[str]) -> list[Step]:
        """Return the steps with these names, in order of worth; all without names.

        Raises:
            PlanError: A name is unknown.
        """
        unknown = sorted(set(names) - {step.name for step in self.steps})
        if unknown:
            raise PlanError(f"unknown steps {unknown}; steps are {', '.join(step.name for step in self.steps)}")
        return [step for step in self.steps if not names or step.name in names]

    def required(self, image: str) -> frozenset[str]:
        """Return the names of the steps that must run on an image; none without an image.

        Raises:
            PlanError: The image is unknown.
        """
        if image and image not in self.must_run:
            raise PlanError(f"unknown machine image {image!r}; images are {', '.join(self.must_run)}")
        return self.must_run.get(image, frozenset())


def read(path: Path = LIST) -> Plan:
    """Read a list of steps.

    Raises:
        PlanError: An image names a step that is not in the list.
    """
    content: dict[str, Any] = json.loads(path.read_text())
    steps = tuple(
        Step(
            row["name"],
            row["function"],
            row["limit_seconds"],
            tuple(row.get("needs", ())),
            row.get("has_double", False),
        )
        for row in content["steps"]
    )
    must_run = {name: frozenset(image["must_run"]) for name, image in content.get("images", {}).items()}
    names = {step.name for step in steps}
    for image, required in must_run.items():
        if required - names:
            raise PlanError(f"{path}: image {image} requires {sorted(required - names)}, which are not in the list")
    return Plan(steps, must_run, content["seconds"], content["second_seconds"])
