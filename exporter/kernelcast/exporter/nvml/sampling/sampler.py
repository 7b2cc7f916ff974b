"""Reads every GPU of the node through NVML.

It runs in the process of `nvml/worker.py` (and in tests, simulation and recording), so it imports neither numpy nor
pydantic nor Kafka.
"""

from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Self

from kernelcast.exporter.nvml.presence import library_fault
from kernelcast.exporter.nvml.sampling import fields, nvlink, reading
from kernelcast.exporter.nvml.sampling.codes import Codes, error_name
from kernelcast.exporter.nvml.sampling.energy import EnergyJudge
from kernelcast.exporter.nvml.sampling.gpm import Gpm
from kernelcast.exporter.nvml.sampling.gpu_values import GpuValues, LostGpuError, ValueReader
from kernelcast.exporter.nvml.sampling.health import GpuHealth
from kernelcast.exporter.nvml.sampling.inventory import GPUS, Gpu, find, is_bound
from kernelcast.exporter.nvml.sampling.labels import GpuLabels
from kernelcast.exporter.nvml.sampling.peers import Peers, PeerStatus
from kernelcast.exporter.nvml.sampling.processes import Processes
from kernelcast.exporter.nvml.sampling.reading import GpuReading, LinkReading, NodeReading, ProcessUse
from kernelcast.exporter.nvml.sampling.xid import FELL_OFF_THE_BUS, XidEvents, XidListener
from kernelcast.exporter.running_time import RunningTime
from kernelcast.wire.catalogue.devices.dcgm_exporter import P2P_STATUS
from kernelcast.wire.catalogue.devices.device import POWER_LIMIT, TOTAL_ENERGY, XID_ERRORS
from kernelcast.wire.errors import DeviceError
from kernelcast.wire.histogram import NANOSECONDS_PER_SECOND

FIRST_RETRY_NS: Final = 5 * NANOSECONDS_PER_SECOND
LONGEST_RETRY_NS: Final = 300 * NANOSECONDS_PER_SECOND
"""A lost GPU is looked up again after the first, then at doubling intervals up to the longest."""
RELIST_NS: Final = 60 * NANOSECONDS_PER_SECOND
"""How often the list of GPUs is compared with NVML's: MIG instances come and go while the driver runs."""
MAX_ERRORS: Final = 1000
"""Errors kept between two readings, far more than one makes; beyond it the oldest are dropped."""


@dataclass(frozen=True, slots=True)
class SamplerOptions:
    """Options of the sampler.

    Attributes:
        rows: OTLP names of rows that are asked for.
        processes: Whether the processes of each GPU are.
        names: Whether their names are read from this machine; a recording's processes run elsewhere.
        nvlink: The fields of each NVLink: one of `nvlink.CHOICES`.
        labels: Names of labels of `labels.LABEL_FIELDS` that every series of a GPU gets.
        bus_ids: PCI addresses of the only GPUs to open; None opens all.
    """

    rows: tuple[str, ...] = fields.DEFAULT_ROWS
    processes: bool = True
    names: bool = True
    nvlink: str = nvlink.OFF
    labels: tuple[str, ...] = ()
    bus_ids: tuple[str, ...] | None = None

    def to_json(self) -> dict[str, Any]:
        """Convert to lists and text."""
        return asdict(self)

    @classmethod
    def from_json(cls, made: Mapping[str, Any]) -> Self:
        """The options that `to_json` was made from."""
        bus_ids = made["bus_ids"]
        parts = {"rows": tuple(made["rows"]), "labels": tuple(made["labels"])}
        return cls(**{**made, **parts, "bus_ids": None if bus_ids is None else tuple(bus_ids)})


class Sampler:
    """Reads the GPUs at each `sample`, and looks up lost ones again. One thread uses it; XIDs have one of their own.

    Args:
        nvml: The pynvml module, or a double of it; initialised by `start`.
        options: The values to sample.
        on_xids: As of `XidEvents`.
        gpus: The driver's directory of GPUs.
    """

    def __init__(
        self,
        nvml: Any,
        options: SamplerOptions | None = None,
        *,
        on_xids: XidListener = lambda _counts: None,
        gpus: Path = GPUS,
    ) -> None:
        self._nvml, self._directory = nvml, gpus
        self._codes = Codes(nvml)
        # Filled by the XIDs' thread too.
        self._errors: deque[tuple[str, str]] = deque(maxlen=MAX_ERRORS)
        self._values = ValueReader(nvml, self._codes, self._failed)
        self._gpm = Gpm(nvml, self._codes, self._failed)
        # A recording's processes are not those of this machine.
        self._processes = Processes(nvml, self._codes, self._failed, name_of=getattr(nvml, "process_name", None))
        self._xids = XidEvents(nvml, self._codes, self._failed, on_xids=on_xids)
        self._labels = GpuLabels(nvml, self._codes, self._failed)
        self._peer_status = PeerStatus(nvml, self._codes, self._failed)
        self._peers: Peers = {}
        self._links = nvlink.NvLinks(nvml, self._codes, self._failed)
        self._energy = EnergyJudge()
        self._health = GpuHealth(nvml, self._codes, self._failed)
        self._gpus: list[Gpu] = []
        self._known: dict[str, Gpu] = {}
        self._driver_version = ""
        self._open = False
        self._all_answer = False
        self._relist_at_ns = 0
        self._time = RunningTime()
        self._retry = False
        self._wait_ns = FIRST_RETRY_NS
        self.change(options or SamplerOptions())

    def change(self, options: SamplerOptions) -> None:
        """Use other options from now on."""
        self._wanted = frozenset(options.rows)
        self._with_processes = options.processes
        self._processes.with_names = options.names
        self._links.wanted = options.nvlink
        self._bus_ids = options.bus_ids
        self._labels.wanted = options.labels
        self._labels.read(self._gpus)

    def start(self) -> Self:
        """Load NVML and find the GPUs.

        Raises:
            DeviceError: There is no driver, or it does not answer.
        """
        try:
            self._nvml.nvmlInit()
        except self._nvml.NVMLError as error:
            remedy = "install the NVIDIA driver, give the container the GPU (--gpus all), or set exporter.nvml to off"
            reason = library_fault() or f"{error}; {remedy}"
            raise DeviceError(f"NVML cannot be used: {reason}") from None
        self._open = True
        self._retry = not self._enumerate()
        return self

    def found(self) -> tuple[GpuReading, ...]:
        """The GPUs and MIG instances that are there, without values."""
        return tuple(_described(gpu) for gpu in self._gpus)

    def sample(self, time_ns: int) -> NodeReading:
        """Read every GPU; errors of NVML are in the reading, never raised. `time_ns` becomes the reading's time."""
        now_ns = self._time.at(time_ns)
        if now_ns >= self._relist_at_ns:
            self._relist(now_ns)
        self._peers = self._peer_status.read(self._gpus) if P2P_STATUS.otlp_name in self._wanted else {}
        gpus = tuple(self._read(gpu, now_ns) for gpu in list(self._gpus))
        present = {gpu.uuid for gpu in self._gpus}
        gone = tuple(uuid for uuid in self._known if uuid not in present)
        absent = tuple(self._absent(self._known[uuid]) for uuid in gone if not any(gpu.uuid == uuid for gpu in gpus))
        errors = tuple(self._errors.popleft() for _ in range(len(self._errors)))
        return NodeReading(
            time_ns,
            self._driver_version,
            gpus=(*gpus, *absent),
            errors=errors,
            missing=gone,
            all_answer=self._all_answer,
        )

    def close(self) -> None:
        """Release NVML; safe to call twice."""
        if self._open:
            self._open = False
            self._xids.stop()
            self._gpm.close()
            with suppress(self._nvml.NVMLError):
                self._nvml.nvmlShutdown()

    def _relist(self, now_ns: int) -> None:
        """List the GPUs again; if one was lost, NVML is shut down and initialised first."""
        if self._retry:
            self._reopen()
        complete = self._enumerate()
        if complete:
            self._retry, self._wait_ns, self._relist_at_ns = False, FIRST_RETRY_NS, now_ns + RELIST_NS
        else:
            self._retry, self._relist_at_ns = True, now_ns + self._wait_ns
            self._wait_ns = min(self._wait_ns * 2, LONGEST_RETRY_NS)

    def _reopen(self) -> None:
        """Shut NVML down and initialise it, because handles from before a GPU's reset may fail for ever."""
        self._xids.stop()
        self._labels.outdate()
        self._gpm.close()
        with suppress(self._nvml.NVMLError):  # it is shut down already if the last initialisation failed
            self._nvml.nvmlShutdown()
        try:
            self._nvml.nvmlInit()
        except self._nvml.NVMLError as error:
            self._failed(fields.INIT_CALL, error_name(error))

    def _enumerate(self) -> bool:
        """List the GPUs; False if one did not answer, or there is none, or a lost one is not listed."""
        gpus: list[Gpu] = []
        found, listed = 0, -1
        try:
            driver_version = str(self._nvml.nvmlSystemGetDriverVersion())
            if driver_version != self._driver_version:
                self._labels.outdate()
            self._driver_version = driver_version
            places = range(self._nvml.nvmlDeviceGetCount()) if self._bus_ids is None else self._bus_ids
            listed = len(places)
            for place in places:
                added = self._found(place)
                found += bool(added)
                gpus += added
        except self._nvml.NVMLError as error:
            self._failed(fields.COUNT_CALL, error_name(error))
        self._gpus = gpus
        self._gpm.keep(gpus)
        self._xids.watch(gpus)
        self._labels.read(gpus)
        self._health.read(gpus)
        self._links.outdate()
        present = {gpu.uuid: gpu for gpu in gpus if not gpu.gi_id}
        self._all_answer = found == listed
        lost = {uuid: gpu for uuid, gpu in self._known.items() if uuid not in present and not self._has_left(gpu)}
        self._known = {**lost, **present}
        return self._all_answer and bool(present) and not lost

    def _has_left(self, gpu: Gpu) -> bool:
        """Whether a GPU that is not listed was taken from the driver in order, as for a virtual machine."""
        fell_off = self._xids.last(gpu.uuid) == FELL_OFF_THE_BUS
        return self._all_answer and not fell_off and not is_bound(gpu.pci_bus_id, self._directory)

    def _found(self, place: int | str) -> list[Gpu]:
        try:
            return find(self._nvml, self._codes, place)
        except self._nvml.NVMLError as error:
            self._failed(fields.ENUMERATE_CALL, error_name(error))
            return []

    def _read(self, gpu: Gpu, now_ns: int) -> GpuReading:
        try:
            values = self._values.read(gpu, self._wanted)
            self._judge_energy(gpu, values, now_ns)
            self._gpm.read(gpu, self._wanted, now_ns, values)
            used = self._processes.read(gpu, now_ns, self._time.ahead_ns) if self._with_processes else ()
            links = self._links.read(gpu)
        except LostGpuError:
            self._energy.forget(gpu.uuid)
            self._gpus = [one for one in self._gpus if one.uuid != gpu.uuid]
            if not self._retry:
                self._retry, self._relist_at_ns = True, now_ns + FIRST_RETRY_NS
            return self._absent(gpu)
        if not gpu.gi_id and XID_ERRORS.otlp_name in self._wanted:
            values.put(XID_ERRORS, self._xids.last(gpu.uuid), reading.NOT_SUPPORTED)
        return self._reading(gpu, values, used, links)

    def _judge_energy(self, gpu: Gpu, values: GpuValues, now_ns: int) -> None:
        """Leave out an energy that the GPU cannot have reached since the last reading."""
        energy_mj = values.values.get(TOTAL_ENERGY.otlp_name)
        limit_watts = values.values.get(POWER_LIMIT.otlp_name)
        if energy_mj is not None and not self._energy.accepts(gpu.uuid, energy_mj, limit_watts, now_ns):
            del values.values[TOTAL_ENERGY.otlp_name]
            values.put(TOTAL_ENERGY, None, reading.IMPLAUSIBLE)
            self._failed(fields.ENERGY_CALL.name, reading.IMPLAUSIBLE)

    def _absent(self, gpu: Gpu) -> GpuReading:
        rows = fields.INSTANCE_ROWS if gpu.gi_id else fields.ROWS.keys() - fields.SOURCE_ROWS.keys()
        asked = sorted(self._wanted.intersection(rows))
        return self._reading(gpu, GpuValues(absent=dict.fromkeys(asked, reading.LOST)))

    def _reading(
        self, gpu: Gpu, values: GpuValues, used: tuple[ProcessUse, ...] = (), links: tuple[LinkReading, ...] = ()
    ) -> GpuReading:
        xids = () if gpu.gi_id else self._xids.totals(gpu.uuid)
        is_lost = not values.values and set(values.absent.values()) == {reading.LOST}
        if not gpu.gi_id and not is_lost:
            values.absent.update(self._health.absent(gpu.uuid))
        more = {
            "health": () if gpu.gi_id or is_lost else self._health.of(gpu.uuid),
            "links": links,
            "labels": self._labels.of(gpu.uuid),
            "peers": {} if gpu.gi_id else self._peers.get(gpu.uuid, {}),
        }
        return _described(gpu, values=values.values, absent=values.absent, processes=used, xids=xids, **more)

    def _failed(self, call: str, error: str) -> None:
        self._errors.append((call, error))


def _described(gpu: Gpu, **parts: Any) -> GpuReading:
    return GpuReading(
        uuid=gpu.uuid,
        index=gpu.index,
        pci_bus_id=gpu.pci_bus_id,
        device=gpu.device,
        model_name=gpu.model_name,
        gi_id=gpu.gi_id,
        gi_profile=gpu.gi_profile,
        gi_placement=gpu.gi_placement,
        gi_alone=gpu.gi_alone,
        mig_uuids=gpu.mig_uuids,
        **parts,
    )
