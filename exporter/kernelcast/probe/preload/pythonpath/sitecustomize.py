"""Switches the probe on in every Python below `kernelcast probe --`, which puts this folder first in `PYTHONPATH`.

The folder holds no other module, so that no module of a program is hidden, and leaves `sys.path` again. The
environment's own `sitecustomize`, if there is one, runs as if this file were not there.

It runs in any Python that the program starts: nothing of kernelcast may be there, and each import costs each process.
"""

import os
import sys
from importlib.machinery import PathFinder

LAUNCH = "KERNELCAST_PROBE_LAUNCH"
"""Names one run of `kernelcast probe`: its process number, a hyphen, and a part that is unique."""
REPORTED = "KERNELCAST_PROBE_REPORTED"
"""Set in a process that has reported that it is not measured, and so in those below it."""


def _remove_this_folder() -> None:
    here = os.path.dirname(os.path.realpath(__file__))  # noqa: PTH120  importing `pathlib` takes most of a start
    sys.path[:] = [path for path in sys.path if os.path.realpath(path or ".") != here]


def _switch_on() -> None:
    try:
        from kernelcast.probe.preload.door import open_door  # noqa: PLC0415  the program's Python may not have it
    except ImportError:
        if os.environ.get("KERNELCAST_PROBE", "").lower() not in ("", "0", "off", "no", "false"):
            _report_once()
        return
    open_door()


def _report_once() -> None:
    """Write one line to stderr that this Python is not measured, unless a process of the same run has."""
    reported = REPORTED in os.environ
    os.environ[REPORTED] = "1"
    if reported or not _is_first():
        return
    older = "" if sys.version_info >= (3, 11) else "kernelcast needs Python 3.11 or later; "
    text = (
        f"kernelcast: {sys.executable} has no kernelcast, so its programs are not measured; {older}"
        f"install it there: {sys.executable} -m pip install kernelcast\n"
    )
    try:  # noqa: SIM105  `contextlib` is one more import
        sys.stderr.write(text)
    except (AttributeError, OSError, ValueError):
        pass  # the program has no standard error


def _is_first() -> bool:
    """Whether no process beside this one has reported, below a program that is no Python itself, as a shell script.

    A file without content in the temporary directory says that one has. Below a Python, the environment says it.
    """
    launch = os.environ.get(LAUNCH, "")
    if not launch.replace("-", "").isalnum() or launch.startswith(f"{os.getpid()}-"):
        return True
    folder = os.environ.get("TMPDIR") or "/tmp"  # noqa: S108  opened below with O_EXCL and O_NOFOLLOW
    try:
        flags = os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_WRONLY
        os.close(os.open(os.path.join(folder, f"kernelcast-unmeasured-{launch}"), flags, 0o600))  # noqa: PTH118
    except FileExistsError:
        return False
    except OSError:
        pass  # better twice than never
    return True


def _run_the_next() -> None:
    spec = PathFinder.find_spec("sitecustomize", sys.path)
    if spec is None or spec.loader is None:
        return
    from importlib.util import module_from_spec  # noqa: PLC0415  rarely needed

    module = module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


_remove_this_folder()
_switch_on()
_run_the_next()
