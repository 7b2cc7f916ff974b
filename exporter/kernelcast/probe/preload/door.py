"""Start-up code of a Python interpreter whose environment may switch the probe on.

It is imported only where `KERNELCAST_PROBE` is set, imports next to nothing itself, and never raises: pip, compile
workers and data-loader children inherit the variable, too.
"""

import os

SWITCH = "KERNELCAST_PROBE"
OFF = ("", "0", "off", "no", "false")


def open_door() -> None:
    """Have the probe wait for this process's CUDA context, if the variable says so; a second call changes nothing."""
    if os.environ.get(SWITCH, "").lower() in OFF:
        return
    try:
        from kernelcast.probe.activation.dormant import arm  # noqa: PLC0415  not before the variable was looked at

        arm()
    except Exception:  # noqa: BLE001, S110  an interpreter must start whatever is wrong with a probe
        pass
