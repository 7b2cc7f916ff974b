"""Numbers of hypothesis examples: profiles for all properties, and numbers for parsers of foreign bytes.

A property takes its number from the profile: an explicit `max_examples` would beat every profile. Parsers of foreign
bytes are the exception: in CI and at night each keeps a number that has found faults before.
"""

import os
from collections.abc import Mapping
from typing import Any, Final

from hypothesis import settings

NUMBERS: Final[Mapping[str, int]] = {"fast": 10, "default": 25, "ci": 50, "nightly": 1_000}
"""Examples of a property by profile."""
THOROUGH: Final = ("ci", "nightly")
"""Profiles in which parsers of foreign bytes keep their numbers, if those are higher."""
CHOICE: Final = "HYPOTHESIS_PROFILE"


def register_profiles() -> None:
    """Register our profiles; hypothesis' own `ci`, which tries the same examples in each run, is replaced."""
    for name, number in NUMBERS.items():
        settings.register_profile(name, max_examples=number, deadline=None, derandomize=False, print_blob=True)


def chosen_profile(environ: Mapping[str, str] = os.environ, *, fast: bool = False) -> str:
    """The profile that HYPOTHESIS_PROFILE names, else `fast` for the fast tests, `ci` in CI, and `default`."""
    in_ci = environ.get("CI", "").lower() in ("1", "true")
    return environ.get(CHOICE) or ("fast" if fast else "ci" if in_ci else "default")


def parser_examples(number: int, **more: Any) -> settings:
    """Settings of a property about a parser of foreign bytes.

    Args:
        number: The examples in CI and at night, where the profile has fewer.
        more: Other settings of hypothesis.
    """
    thorough = settings.get_current_profile_name() in THOROUGH
    ours = settings().max_examples
    return settings(max_examples=max(number, ours) if thorough else min(number, ours), **more)
