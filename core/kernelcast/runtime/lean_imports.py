"""Imports libraries without optional parts that a daemon never uses but would keep in memory.

`cli/app.py` calls it before it imports a daemon.
"""

import importlib
import sys


def import_structlog_without_rich() -> None:
    """Import structlog before any other module does, without rich, which only its console renderer uses.

    rich and pygments take 3.7 MiB. They can be imported afterwards, as typer does for `--help` and for usage errors.
    """
    if "rich" in sys.modules:
        return
    sys.modules["rich"] = None  # type: ignore[assignment]  # the import system raises ModuleNotFoundError for None
    try:
        importlib.import_module("structlog")
    finally:
        del sys.modules["rich"]
