"""The NVLinks of each GPU: state, traffic and errors, asked for link by link through NVML's field values.

Source: nvml.h, "Field Identifiers": scopeId is the link's number; 161 to 163 are not supported on Blackwell and later,
which have 201 to 222 instead.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from kernelcast.exporter.nvml.sampling.codes import Codes, error_name
from kernelcast.exporter.nvml.sampling.gpu_values import LARGEST, MEMBERS, Failed, LostGpuError, is_available
from kernelcast.exporter.nvml.sampling.inventory import Gpu
from kernelcast.exporter.nvml.sampling.reading import LinkReading

OFF: Final = "off"
STATE: Final = "state"
ALL: Final = "all"
CHOICES: Final = (OFF, STATE, ALL)
MAX_LINKS: Final = 36
"""Of one GPU. Source: nvml.h, NVML_NVLINK_MAX_LINKS."""
VALUES_PER_CALL: Final = 128
STATE_CALL: Final = "nvmlDeviceGetNvLinkState"
LINKS_CALL: Final = "nvmlDeviceGetFieldValues(NVLINK)"
_PREFIX: Final = "NVML_FI_DEV_NVLINK_"
_STATE_FIELD: Final = "GET_STATE"
_UP_STATES: Final = (1, 2)
"""Active and asleep. Source: nvml.h, NVML_NVLINK_STATE_ACTIVE and NVML_NVLINK_STATE_SLEEP."""
_BYTES_PER_KIBIBYTE: Final = 1024


@dataclass(frozen=True, slots=True)
class _Traffic:
    """A field that counts a link's traffic."""

    direction: str
    bytes_per_unit: int


_TRAFFIC_FIELDS: Final = MappingProxyType(
    {
        "THROUGHPUT_DATA_RX": _Traffic("receive", _BYTES_PER_KIBIBYTE),
        "THROUGHPUT_DATA_TX": _Traffic("transmit", _BYTES_PER_KIBIBYTE),
        "COUNT_RCV_BYTES": _Traffic("receive", 1),
        "COUNT_XMIT_BYTES": _Traffic("transmit", 1),
    }
)
"""By field; of a direction the first that the GPU supports is taken."""
_ERROR_FIELDS: Final = MappingProxyType(
    {
        "ERROR_DL_REPLAY": "replay",
        "ERROR_DL_RECOVERY": "recovery",
        "ERROR_DL_CRC": "crc",
        "COUNT_MALFORMED_PACKET_ERRORS": "malformed_packet",
        "COUNT_BUFFER_OVERRUN_ERRORS": "buffer_overrun",
        "COUNT_RCV_ERRORS": "receive",
        "COUNT_RCV_REMOTE_ERRORS": "receive_remote",
        "COUNT_RCV_GENERAL_ERRORS": "receive_general",
        "COUNT_LOCAL_LINK_INTEGRITY_ERRORS": "local_link_integrity",
        "COUNT_XMIT_DISCARDS": "transmit_discard",
        "COUNT_LINK_RECOVERY_FAILED_EVENTS": "recovery_failed",
        "COUNT_LINK_RECOVERY_EVENTS": "recovery_event",
        "COUNT_EFFECTIVE_ERRORS": "effective",
        "COUNT_SYMBOL_ERRORS": "symbol",
    }
)
"""By field, the value of the label `error`."""
_COUNTER_FIELDS: Final = (*_TRAFFIC_FIELDS, *_ERROR_FIELDS)

_LinkField = tuple[str, int]
"""A field's name without its prefix, and a link."""


@dataclass(slots=True)
class _LinkSupport:
    """Number of links of one GPU, and the fields that it does not support.

    Attributes:
        links: The number.
        unsupported: The fields, which are not asked for again.
    """

    links: int
    unsupported: set[_LinkField] = field(default_factory=set)


class NvLinks:
    """Asks one NVML about the links of its GPUs.

    Args:
        nvml: pynvml, or a double of it.
        codes: Its error codes.
        failed: Called with the call and NVML's name for the error, for errors other than not supported.

    Attributes:
        wanted: One of `CHOICES`. Can be changed.
    """

    def __init__(self, nvml: Any, codes: Codes, failed: Failed) -> None:
        self._nvml = nvml
        self._codes = codes
        self._failed = failed
        self.wanted = OFF
        self._known: dict[str, _LinkSupport] = {}

    def outdate(self) -> None:
        """Ask each GPU again for its number of links and its supported fields."""
        self._known.clear()

    def read(self, gpu: Gpu) -> tuple[LinkReading, ...]:
        """Every link of a whole GPU; of a MIG instance none.

        Raises:
            LostGpuError: The GPU is gone.
        """
        if self.wanted == OFF or gpu.gi_id:
            return ()
        known = self._known.get(gpu.uuid) or self._asked_for_links(gpu)
        if known is None:
            return ()
        names = (_STATE_FIELD, *_COUNTER_FIELDS) if self.wanted == ALL else (_STATE_FIELD,)
        asked = [(name, link) for link in range(known.links) for name in names]
        values = dict(self._values(gpu, [one for one in asked if one not in known.unsupported], known))
        return tuple(self._reading(gpu, link, values) for link in range(known.links))

    def _asked_for_links(self, gpu: Gpu) -> _LinkSupport | None:
        """Return the number of links as NVML answers; None after an error, so that it is asked again."""
        question, answer = ("LINK_COUNT", 0), _LinkSupport(0)
        found = dict(self._values(gpu, [question], answer))
        if question in found or question in answer.unsupported:
            answer.links = min(found.get(question, 0), MAX_LINKS)
            self._known[gpu.uuid] = answer
            return answer
        return None

    def _values(self, gpu: Gpu, asked: Sequence[_LinkField], known: _LinkSupport) -> Iterator[tuple[_LinkField, int]]:
        """The values that the GPU gives; unsupported fields, and those that pynvml does not have, are noted."""
        names = {name for name, _link in asked}
        unnamed = {name for name in names if not hasattr(self._nvml, f"{_PREFIX}{name}")}
        known.unsupported.update(one for one in asked if one[0] in unnamed)
        asked = [one for one in asked if one[0] not in unnamed]
        for first in range(0, len(asked), VALUES_PER_CALL):
            batch = asked[first : first + VALUES_PER_CALL]
            ids = [(getattr(self._nvml, f"{_PREFIX}{name}"), link) for name, link in batch]
            try:
                answers = self._nvml.nvmlDeviceGetFieldValues(gpu.handle, ids)
            except self._nvml.NVMLError as error:
                self._refused(LINKS_CALL, error)
                known.unsupported.update(batch if self._codes.expected(error.value) else ())
                continue
            for one, answer in zip(batch, answers, strict=True):
                code = answer.nvmlReturn
                if code == self._nvml.NVML_SUCCESS:
                    value = int(getattr(answer.value, MEMBERS[answer.valueType]))
                    if is_available(value) and value <= LARGEST // _BYTES_PER_KIBIBYTE:
                        yield one, value
                elif code == self._nvml.NVML_ERROR_INVALID_ARGUMENT or self._codes.expected(code):
                    known.unsupported.add(one)
                else:
                    self._refused(LINKS_CALL, self._nvml.NVMLError(code))

    def _reading(self, gpu: Gpu, link: int, values: dict[_LinkField, int]) -> LinkReading:
        traffic: dict[str, int] = {}
        for name, what in _TRAFFIC_FIELDS.items():
            if (name, link) in values:
                traffic.setdefault(what.direction, values[name, link] * what.bytes_per_unit)
        errors = {error: values[name, link] for name, error in _ERROR_FIELDS.items() if (name, link) in values}
        state = values[_STATE_FIELD, link] if (_STATE_FIELD, link) in values else self._older_state(gpu, link)
        return LinkReading(link, None if state is None else state in _UP_STATES, traffic, errors)

    def _older_state(self, gpu: Gpu, link: int) -> int | None:
        """Link states by the call that GPUs before Hopper answer."""
        try:
            state = int(self._nvml.nvmlDeviceGetNvLinkState(gpu.handle, link))
        except self._nvml.NVMLError as error:
            self._refused(STATE_CALL, error)
            return None
        return state if is_available(state) else None

    def _refused(self, call: str, error: Any) -> None:
        """Count an error that is not expected.

        Raises:
            LostGpuError: It says that the GPU is gone.
        """
        if not self._codes.expected(error.value):
            self._failed(call, error_name(error))
        if self._codes.lost(error.value):
            raise LostGpuError from None
