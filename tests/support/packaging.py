"""The hook of the package's build, loaded as a module."""

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Final

REPOSITORY: Final = Path(__file__).resolve().parents[2]


def load_build_hook() -> ModuleType:
    """Load `hatch_build.py`, which is no module on the path."""
    spec = importlib.util.spec_from_file_location("hatch_build_in_a_test", REPOSITORY / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
