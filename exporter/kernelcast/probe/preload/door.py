"""Start-up code of a Python interpreter whose environment may switch the probe on.

`kernelcast_probe.pth`, or `pythonpath/sitecustomize.py`, calls `open_door` when the interpreter starts. It is imported
only where `KERNELCAST_PROBE` is set, imports next to nothing itself, and never raises: pip, compile workers and
data-loader children inherit the variable, too.
"""

import os

from kernelcast.probe.switch import OFF, SWITCH


def open_door() -> None:
    """Have the probe wait for this process's CUDA context, if the variable says so; a second call changes nothing."""
    if os.environ.get(SWITCH, "").lower() in OFF:
        return
    try:
        # Not before the variable was looked at.
        from kernelcast.probe.activation.context_waiter import wait_for_context  # noqa: PLC0415

        wait_for_context(_start_probe)
    except Exception:  # noqa: BLE001, S110  an interpreter must start whatever is wrong with a probe
        pass


def _start_probe() -> None:
    """Start the probe: this process has a CUDA context."""
    from kernelcast.probe.activation.current import start_from_environment  # noqa: PLC0415  100 ms, only with a GPU

    start_from_environment()
