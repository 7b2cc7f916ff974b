"""Converts recorded answers (JSON) to the types that pynvml's functions return; `RecordedNvml` calls it."""

from types import SimpleNamespace
from typing import Any, Final

import pynvml

STRUCTS: Final = {
    "nvmlDeviceGetUtilizationRates": "c_nvmlUtilization_t",
    "nvmlDeviceGetMemoryInfo": "c_nvmlMemory_v2_t",
    "nvmlDeviceGetPciInfo": "nvmlPciInfo_t",
    "nvmlGpmQueryDeviceSupport": "c_nvmlGpmSupport_t",
}
"""Calls that answer with a struct; other mappings become objects with the same members."""


def shaped(name: str, answer: Any) -> Any:
    """Return an answer as pynvml's function of this name would."""
    if isinstance(answer, list):
        return [_object(one) if isinstance(one, dict) else one for one in answer]
    if not isinstance(answer, dict):
        return answer
    if name not in STRUCTS:
        return _object(answer)
    older = STRUCTS[name] == "c_nvmlMemory_v2_t" and "reserved" not in answer
    made = pynvml.c_nvmlMemory_t() if older else getattr(pynvml, STRUCTS[name])()
    for member, value in answer.items():
        setattr(made, member, value.encode() if isinstance(value, str) else value)
    return made


def _object(members: dict[str, Any]) -> SimpleNamespace:
    inner = {
        name: [_object(one) for one in value] if isinstance(value, list) else value for name, value in members.items()
    }
    return SimpleNamespace(**inner)
