"""What `nvidia-smi -q` prints for GPUs of each class, shortened: which lines have a value, and which are N/A.

GH200 is thamada/gls, `gls/GH200_smi.py` (Apache-2.0). The others have values of ours; which lines are N/A is from the
source that each names.
"""

from collections.abc import Mapping
from typing import Final

_ALL: Final = """
==============NVSMI LOG==============

Timestamp                                 : Tue Nov 24 10:00:00 2026
Driver Version                            : {driver}

Attached GPUs                             : 1
GPU {bus}
    Product Name                          : {name}
    GPU UUID                              : {uuid}
    Minor Number                          : {minor}
    MIG Mode
        Current                           : N/A
    PCI
        Bus Id                            : {bus}
        GPU Link Info
            PCIe Generation
                Max                       : {generation}
                Current                   : {generation}
            Link Width
                Max                       : {width}
                Current                   : {width}
        Replays Since Reset               : {replays}
    Fan Speed                             : {fan}
    Performance State                     : {pstate}
    Clocks Event Reasons
        Idle                              : {idle}
        SW Power Cap                      : {capped}
    FB Memory Usage
        Total                             : {total}
        Reserved                          : {reserved}
        Used                              : {used}
        Free                              : {free}
    Utilization
        Gpu                               : {busy}
        Memory                            : {copying}
        Encoder                           : {encoding}
        Decoder                           : {encoding}
    Retired Pages
        Pending Page Blacklist            : N/A
    Remapped Rows                         : N/A
    Temperature
        GPU Current Temp                  : {heat}
        GPU Slowdown Temp                 : N/A
        Memory Current Temp               : {memory_heat}
    GPU Power Readings
        Power Draw                        : {power}
        Current Power Limit               : {limit}
    Clocks
        SM                                : {sm}
        Memory                            : {memory}
    Processes                             : None
"""
_VALUES: Final = {
    "driver": "580.95.05",
    "bus": "00000000:01:00.0",
    "minor": "0",
    "generation": "4",
    "width": "16x",
    "replays": "0",
    "fan": "N/A",
    "pstate": "P0",
    "idle": "Active",
    "capped": "Not Active",
    "total": "24576 MiB",
    "reserved": "500 MiB",
    "used": "2000 MiB",
    "free": "22076 MiB",
    "busy": "0 %",
    "copying": "0 %",
    "encoding": "0 %",
    "heat": "36 C",
    "memory_heat": "N/A",
    "power": "11.17 W",
    "limit": "300.00 W",
    "sm": "208 MHz",
    "memory": "405 MHz",
}
_NO_MEMORY: Final = dict.fromkeys(("total", "reserved", "used", "free", "memory"), "N/A")
_NO_LINK: Final = dict.fromkeys(("generation", "width", "replays"), "N/A")


def _of(name: str, **printed: str) -> str:
    return _ALL.format(**{**_VALUES, "name": name, "uuid": f"GPU-{name.replace(' ', '-')}", **printed})


GPU_CLASSES: Final[Mapping[str, str]] = {
    # nv-morpheus/MRC 561, leptonai/gpud 1170, lablup/all-smi 80
    "unified memory (GB10)": _of("NVIDIA GB10", **_NO_MEMORY, limit="N/A"),
    # NVIDIA-SMI 580.00 on JetPack 7.0: memory "Not Supported", utilisation, no temperature and power
    "Jetson Thor": _of(
        "NVIDIA Thor",
        **{**_NO_MEMORY, **_NO_LINK},
        driver="580.00",
        pstate="N/A",
        heat="N/A",
        power="N/A",
        limit="N/A",
    ),
    # JetPack 6, driver 540.4.0: Chen-zexi/vllm-cli 11, crystian/ComfyUI-Crystools 141, XuehaiPan/nvitop 168
    "Jetson Orin": _of(
        "Orin (nvgpu)",
        **dict.fromkeys((name for name in _VALUES if name not in ("bus", "minor")), "N/A")
        | {"driver": "540.4.0", "bus": "00000000:00:00.0"},
    ),
    # Drivers 510: dask/distributed 5342, microsoft/WSL 7162, NVIDIA/nvidia-container-toolkit 271
    "WSL2": _of(
        "NVIDIA GeForce RTX 3080",
        driver="510.10",
        minor="N/A",
        busy="N/A",
        copying="N/A",
        encoding="N/A",
    ),
    # NVIDIA/dcgm-exporter 193, 236: a guest has frame buffer, clocks and utilisation; heat and power are the host's
    "vGPU guest": _of(
        "NVIDIA A40-8Q",
        **_NO_LINK,
        heat="N/A",
        power="N/A",
        limit="N/A",
        idle="N/A",
        capped="N/A",
    ),
    "GH200": _of(
        "NVIDIA GH200 480GB",
        driver="550.127.05",
        width="1x",
        total="97871 MiB",
        reserved="1103 MiB",
        used="2 MiB",
        free="96767 MiB",
        heat="31 C",
        memory_heat="39 C",
        power="87.88 W",
        limit="700.00 W",
        sm="345 MHz",
        memory="2619 MHz",
    ),
    # The oldest whose text is public with thamada/gls, `gls/GTX680_smi.py`, driver 470.256.02: memory and fan alone
    "a GPU before 2013 (GTX 680)": _of(
        "NVIDIA GeForce GTX 680",
        **_NO_LINK,
        driver="470.256.02",
        fan="30 %",
        reserved="N/A",
        busy="N/A",
        copying="N/A",
        encoding="N/A",
        power="N/A",
        limit="N/A",
        sm="N/A",
        memory="N/A",
        idle="N/A",
        capped="N/A",
    ).replace("        Reserved                          : N/A\n", ""),
}
"""By class, as in docs/exporter.md."""
FAILING: Final = _of("NVIDIA Failing", fan="ERR!", power="[Unknown Error]")
"""A GPU that the driver cannot read in part. Source: utkuozdemir/nvidia_gpu_exporter 393."""
