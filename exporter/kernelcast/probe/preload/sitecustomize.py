"""Run at the start of every Python below `kernelcast probe --`, whose directory stands first in `PYTHONPATH`.

The environment's own `sitecustomize`, if there is one, is run as if this file were not there.
"""

import importlib.util
import sys
from importlib.machinery import PathFinder
from pathlib import Path


def _run_the_next() -> None:
    here = Path(__file__).resolve().parent
    elsewhere = [path for path in sys.path if Path(path or ".").resolve() != here]
    spec = PathFinder.find_spec("sitecustomize", elsewhere)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


def _open_the_door() -> None:
    try:
        from kernelcast.probe.preload.door import open_door  # noqa: PLC0415  the program's Python may not have it
    except ImportError:
        return
    open_door()


_open_the_door()
_run_the_next()
