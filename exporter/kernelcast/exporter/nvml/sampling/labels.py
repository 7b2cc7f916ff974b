"""Labels that a counters table puts on every series of a GPU: text that stays the same for as long as the driver runs.

Source of names: dcgm-exporter, etc/default-counters.csv, "Static configuration information".
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from kernelcast.exporter.nvml.sampling.codes import Codes, error_name
from kernelcast.exporter.nvml.sampling.gpu_values import Failed, LostGpuError
from kernelcast.exporter.nvml.sampling.inventory import Gpu
from kernelcast.wire.catalogue.devices import device

BRANDS: Final = (
    "Unknown",
    "Quadro",
    "Tesla",
    "NVS",
    "GRID",
    "GeForce",
    "Titan",
    "NVIDIA vApps",
    "NVIDIA vPC",
    "NVIDIA vCS",
    "NVIDIA vWS",
    "NVIDIA Cloud Gaming",
    "Quadro RTX",
    "NVIDIA RTX",
    "NVIDIA",
    "GeForce RTX",
    "Titan RTX",
)
"""By number. Source: nvml.h, nvmlBrandType_t; `NVIDIA` as nvidia-smi prints it, no capture has another."""


@dataclass(frozen=True, slots=True)
class LabelField:
    """One label.

    Attributes:
        call: NVML's name for the call; the label `call` of its errors.
        read: Given the pynvml module and the handle of a whole GPU, the label's value.
    """

    call: str
    read: Callable[[Any, Any], Any]


def _nvml_version(nvml: Any, _gpu: Any) -> Any:
    return nvml.nvmlSystemGetNVMLVersion()


def _brand(nvml: Any, gpu: Any) -> str:
    brand = nvml.nvmlDeviceGetBrand(gpu)
    return BRANDS[brand] if 0 <= brand < len(BRANDS) else str(brand)


def _serial(nvml: Any, gpu: Any) -> Any:
    return nvml.nvmlDeviceGetSerial(gpu)


def _oem_version(nvml: Any, gpu: Any) -> Any:
    return nvml.nvmlDeviceGetInforomVersion(gpu, nvml.NVML_INFOROM_OEM)


def _ecc_version(nvml: Any, gpu: Any) -> Any:
    return nvml.nvmlDeviceGetInforomVersion(gpu, nvml.NVML_INFOROM_ECC)


def _power_version(nvml: Any, gpu: Any) -> Any:
    return nvml.nvmlDeviceGetInforomVersion(gpu, nvml.NVML_INFOROM_POWER)


def _image_version(nvml: Any, gpu: Any) -> Any:
    return nvml.nvmlDeviceGetInforomImageVersion(gpu)


def _vbios_version(nvml: Any, gpu: Any) -> Any:
    return nvml.nvmlDeviceGetVbiosVersion(gpu)


LABEL_FIELDS: Final = MappingProxyType(
    {
        device.NVML_VERSION_LABEL: LabelField("nvmlSystemGetNVMLVersion", _nvml_version),
        device.BRAND_LABEL: LabelField("nvmlDeviceGetBrand", _brand),
        device.SERIAL_LABEL: LabelField("nvmlDeviceGetSerial", _serial),
        device.OEM_INFOROM_LABEL: LabelField("nvmlDeviceGetInforomVersion(OEM)", _oem_version),
        device.ECC_INFOROM_LABEL: LabelField("nvmlDeviceGetInforomVersion(ECC)", _ecc_version),
        device.POWER_INFOROM_LABEL: LabelField("nvmlDeviceGetInforomVersion(POWER)", _power_version),
        device.INFOROM_IMAGE_LABEL: LabelField("nvmlDeviceGetInforomImageVersion", _image_version),
        device.VBIOS_LABEL: LabelField("nvmlDeviceGetVbiosVersion", _vbios_version),
    }
)
"""By label name."""
CALL_NAMES: Final = tuple(field.call for field in LABEL_FIELDS.values())
"""Every name under which errors are counted."""


class GpuLabels:
    """Reads the labels of each GPU once, and again only after a failure or with a new driver.

    Args:
        nvml: pynvml, or a double of it.
        codes: Its error codes.
        failed: Called with the call and NVML's name for the error, for errors other than not supported.

    Attributes:
        wanted: Names of labels; others are not read. Can be changed.
    """

    def __init__(self, nvml: Any, codes: Codes, failed: Failed) -> None:
        self._nvml = nvml
        self._codes = codes
        self._failed = failed
        self.wanted: tuple[str, ...] = ()
        self._known: dict[str, dict[str, str]] = {}
        self._current: set[tuple[str, str]] = set()

    def outdate(self) -> None:
        """Read every label again at the next `read`: the driver was replaced, or a GPU reset. Until then they stay."""
        self._current.clear()

    def read(self, gpus: Iterable[Gpu]) -> None:
        """Read the unknown labels of these GPUs; a MIG instance has the labels of its GPU."""
        for gpu in gpus:
            if gpu.gi_id:
                continue
            missing = [name for name in self.wanted if (gpu.uuid, name) not in self._current]
            try:
                for name in missing:
                    self._read(gpu, name)
            except LostGpuError:
                continue

    def of(self, uuid: str) -> Mapping[str, str]:
        """The wanted labels of a GPU; those that it lacks are absent."""
        known = self._known.get(uuid, {})
        return {name: known[name] for name in self.wanted if known.get(name)}

    def _read(self, gpu: Gpu, name: str) -> None:
        field = LABEL_FIELDS[name]
        try:
            value = field.read(self._nvml, gpu.handle)
        except self._nvml.NVMLError as error:
            if not self._codes.expected(error.value):
                self._failed(field.call, error_name(error))
                if self._codes.lost(error.value):
                    raise LostGpuError from None
                return
            value = ""
        except AttributeError:  # this pynvml does not have the call
            value = ""
        text = value.decode(errors="replace") if isinstance(value, bytes) else str(value)
        self._known.setdefault(gpu.uuid, {})[name] = text
        self._current.add((gpu.uuid, name))
