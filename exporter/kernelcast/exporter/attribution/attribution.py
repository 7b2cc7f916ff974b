"""The labels that say who uses a GPU: of its device series, and of each process on it.

Reading them never waits: the kubelet, directories and files are read by threads of their own (`refreshed`); only
`/proc/PID/cgroup` is read as it is asked for, which the kernel answers from memory.
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol, Self

from kernelcast.exporter.attribution.api_server import ApiServer
from kernelcast.exporter.attribution.cgroup import PROC, CgroupMembership, membership, sees_host_pids
from kernelcast.exporter.attribution.environment import NO_JOBS as NO_ENVIRONMENTS
from kernelcast.exporter.attribution.environment import JobEnvironments
from kernelcast.exporter.attribution.gpu_ids import names_of
from kernelcast.exporter.attribution.jobs import JobDirectory, Jobs
from kernelcast.exporter.attribution.pod_labels import NO_PODS, PodLabelReader, PodLabels
from kernelcast.exporter.attribution.pod_names import LOGS, PodNames, read_names
from kernelcast.exporter.attribution.pod_resources import Container, PodResources
from kernelcast.exporter.attribution.pods import NO_LABELS, PodUses, Use, agreed, container_labels
from kernelcast.exporter.attribution.resource_slices import NO_DEVICES, ResourceSliceReader, SliceDevices
from kernelcast.exporter.attribution.users import PASSWD, read_users, user_of
from kernelcast.exporter.background_value import Refreshed, RefreshPolicy
from kernelcast.exporter.settings import KUBELET_SOCKET
from kernelcast.runtime.logging import get_logger

KUBELET: Final = "kubelet"
POD_NAMES: Final = "pod_names"
JOBS: Final = "jobs"
USERS: Final = "users"
POD_LABELS: Final = "pod_labels"
RESOURCE_SLICES: Final = "resource_slices"
ENVIRONMENTS: Final = "environments"
SOURCES: Final = (KUBELET, POD_NAMES, JOBS, USERS, POD_LABELS, RESOURCE_SLICES, ENVIRONMENTS)
"""Values of the label `source` of attribution's own metrics."""

LABELS, INFO, OFF = FORMS = ("labels", "info", "off")
"""Where the users of a GPU stand: on each of its series, on a series of each user, or nowhere."""

KUBELET_SECONDS: Final = 10.0
JOBS_SECONDS: Final = 2.0
USERS_SECONDS: Final = 300.0
POD_LABELS_SECONDS: Final = 60.0
POD_LABELS_KEEP_SECONDS: Final = 600.0
"""A pod's labels hardly ever change, and an API server may be away while it is upgraded."""
MAX_MISSED: Final = 1000
"""Containers without known labels or image that are remembered, so that each makes one early request and no more."""
FIRST_SECONDS: Final = 1.0
"""Time that the daemon's start waits for first answers, so that its first series need not change their labels."""
KEEP_SECONDS: Final = 120.0
"""While the kubelet is down it gives no GPU to anybody, so its last answer is still right; a pod may have ended."""
SHORT_ID: Final = 12
"""Digits of a container's id that Docker shows."""

NO_JOBS: Final[Jobs] = {}
NO_USERS: Final[Mapping[int, str]] = {}

_log = get_logger(__name__)

ErrorListener = Callable[[str], None]


class AttributedGpu(Protocol):
    """The attributes of a GPU, or of a MIG instance, that attribution needs: `nvml.reading.GpuReading` has them."""

    @property
    def uuid(self) -> str:
        """Of the physical GPU."""
        ...

    @property
    def index(self) -> str:
        """NVML's."""
        ...

    @property
    def device(self) -> str:
        """The device file's name."""
        ...

    @property
    def gi_id(self) -> str:
        """The GPU instance of MIG; empty for a whole GPU."""
        ...

    @property
    def gi_profile(self) -> str:
        """The instance's profile, such as `1g.24gb+me`."""
        ...

    @property
    def gi_placement(self) -> str:
        """Numbers of its profile and first memory slice, such as `20-5`; empty where NVML does not say."""
        ...

    @property
    def gi_alone(self) -> bool:
        """Whether it is the GPU's only instance of that profile."""
        ...

    @property
    def mig_uuids(self) -> tuple[str, ...]:
        """Of the instance."""
        ...


@dataclass(frozen=True, slots=True)
class AttributionSettings:
    """Paths and addresses of the sources; tests pass others.

    Attributes:
        form: Where the users of a GPU stand: one of `FORMS`.
        kubernetes: Whether to ask the kubelet: `auto` does where its socket is, at the start or later.
        socket: The kubelet's.
        shared_gpus: A GPU with several containers has each series once for each (dcgm-exporter's
            KUBERNETES_VIRTUAL_GPUS); otherwise once, with the labels on which all agree.
        job_directory: dcgm-exporter's mapping directory; None where there is none.
        api_server: The API server; None where neither labels of pods, images nor ResourceSlices are wanted.
        slices: Whether to ask for this node's ResourceSlices.
        pod_label_patterns: Of the keys of labels that are taken.
        images: Whether to ask for the images of containers.
        pod_uids: Whether series with a pod have its uid too.
        logs: The kubelet's log directories.
        proc: Processes.
        passwd: Users.
        host_pids: Whether NVML's pids are valid in this pid namespace; None finds out.
    """

    form: str = LABELS
    kubernetes: str = "auto"
    socket: Path = KUBELET_SOCKET
    shared_gpus: bool = False
    job_directory: Path | None = None
    api_server: ApiServer | None = None
    slices: bool = False
    pod_label_patterns: tuple[str, ...] = ()
    images: bool = False
    pod_uids: bool = False
    logs: Path = LOGS
    proc: Path = PROC
    passwd: Path = PASSWD
    host_pids: bool | None = None


class Attribution:
    """Answers who uses a GPU, from the sources' last answers. Use as a context manager.

    Args:
        settings: Where to look.
        on_error: Called with the source, once for each attempt that failed.

    Raises:
        MissingExtraError: `kubernetes` is on, and grpcio is not installed.
    """

    def __init__(self, settings: AttributionSettings, *, on_error: ErrorListener) -> None:
        self._settings = settings
        self._client = PodResources(settings.socket) if settings.kubernetes == "on" else None
        self._host_pids = sees_host_pids() if settings.host_pids is None else settings.host_pids
        self._closing = ExitStack()
        often, seldom = RefreshPolicy(KUBELET_SECONDS, KEEP_SECONDS), RefreshPolicy(USERS_SECONDS, 2 * USERS_SECONDS)
        self._pods = Refreshed(KUBELET, self._ask_kubelet, PodUses(), pace=often, on_error=on_error)
        self._names = Refreshed(POD_NAMES, self._read_names, PodNames(), pace=often, on_error=on_error)
        self._users = Refreshed(USERS, self._read_users, NO_USERS, pace=seldom, on_error=on_error)
        slowly = RefreshPolicy(POD_LABELS_SECONDS, POD_LABELS_KEEP_SECONDS)
        self._pod_labels = Refreshed(POD_LABELS, self._pod_label_reader(), NO_PODS, pace=slowly, on_error=on_error)
        self._slices = Refreshed(RESOURCE_SLICES, self._slice_reader(), NO_DEVICES, pace=slowly, on_error=on_error)
        self._unknown_device = ""
        self._environments = JobEnvironments(settings.proc)
        self._job_environments = Refreshed(
            ENVIRONMENTS, lambda: self._environments.read() or None, NO_ENVIRONMENTS, pace=often, on_error=on_error
        )
        self._labels_missed: OrderedDict[Container, None] = OrderedDict()
        self._images_missed: OrderedDict[Container, None] = OrderedDict()
        self._jobs = Refreshed(
            JOBS, self._job_reader(on_error), NO_JOBS, pace=RefreshPolicy(JOBS_SECONDS, KEEP_SECONDS), on_error=on_error
        )

    @property
    def refreshed(self) -> Sequence[Refreshed[Any]]:
        """Everything that is kept up to date."""
        sources: list[Refreshed[Any]] = [self._users, self._job_environments]
        if self._settings.kubernetes != "off":
            if self._settings.api_server is not None:
                sources += [self._slices] if self._settings.slices else []
                sources += [self._pod_labels] if self._asks_for_pods else []
            sources += [self._pods, self._names]
        if self._settings.job_directory is not None:
            sources.append(self._jobs)
        return sources

    def __enter__(self) -> Self:
        if not self._host_pids:
            _log.warning(
                "processes on GPUs stay without labels: pids here are not the host's; set hostPID, or --pid=host"
            )
        for source in self.refreshed:
            source.start()
            self._closing.callback(source.close)
        patience_ends = time.monotonic() + FIRST_SECONDS
        for source in self.refreshed:
            source.wait_for_first(max(0.0, patience_ends - time.monotonic()))
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.close()
        if self._client is not None:
            self._client.close()

    def refresh(self) -> None:
        """Look at everything once, now, on the caller's thread."""
        for source in self.refreshed:
            source.refresh()

    def labels_for(self, gpu: AttributedGpu) -> tuple[Mapping[str, str], ...]:
        """The label sets of a GPU's device series, at least one: each series stands once for each set."""
        return self.users_of(gpu) if self._settings.form == LABELS else (NO_LABELS,)

    def owners_of(self, gpu: AttributedGpu) -> tuple[Mapping[str, str], ...]:
        """The label sets of the series that name a GPU's users, where its own do not."""
        return tuple(filter(None, self.users_of(gpu))) if self._settings.form == INFO else ()

    def users_of(self, gpu: AttributedGpu) -> tuple[Mapping[str, str], ...]:
        """The label sets of a GPU's users; one empty set where none is known.

        Several sets come from several jobs on one GPU, as with dcgm-exporter, and from `shared_gpus`.
        """
        pods = self._labels_of_gpu(gpu)
        jobs = self._jobs_of(gpu)
        if not jobs:
            return pods
        return tuple({**labels, "hpc_job": job} for job in jobs for labels in pods)

    def process_labels(self, gpu: AttributedGpu, pid: int) -> Mapping[str, str]:
        """Labels of a process by NVML's pid; none where that pid would be another process's here.

        Args:
            gpu: Where it runs.
            pid: In the host's pid namespace.
        """
        return self.labels_of_pid(gpu, pid) if self._host_pids else NO_LABELS

    def labels_of_pid(self, gpu: AttributedGpu, pid: int) -> Mapping[str, str]:
        """Pod, namespace and container of a process on a GPU; else its job and its user. Unknown labels are absent.

        Args:
            gpu: Where it runs.
            pid: In this process's own pid namespace.
        """
        member = None if self._settings.form == OFF else membership(pid, self._settings.proc)
        if member is None:
            return NO_LABELS
        if member.pod_uid:
            return self._of_pod(gpu, member)
        job, container = member.job or self._only_job(gpu), member.container_id
        if not job and not container:
            job = self._job_by_environment(pid)
        found = {"hpc_job": job, "container": container if "-" in container else container[:SHORT_ID]}
        if not container:
            found["user"] = user_of(pid, self._users.value, self._settings.proc)
        return {name: value for name, value in found.items() if value}

    def _job_by_environment(self, pid: int) -> str:
        job = self._environments.job_of(pid, self._job_environments.value)
        if job is None:
            self._job_environments.soon()
        return job or ""

    def image_of_pid(self, pid: int) -> str:
        """The image of the container in which a process runs; empty where it is not known, or not yet.

        Args:
            pid: In this process's own pid namespace.
        """
        if not self._settings.images or (member := membership(pid, self._settings.proc)) is None or not member.pod_uid:
            return ""
        found = self._names.value.of(member)
        if found is None or not found.name:
            self._names.soon()
            return ""
        image = self._pod_labels.value.images.get(found)
        self._ask_ahead(self._images_missed, found, known=image is not None)
        return image or ""

    def _labels_of_gpu(self, gpu: AttributedGpu) -> tuple[Mapping[str, str], ...]:
        uses = [{**self._labels_of_pod(use.container), **use.labels()} for use in self._uses(gpu)]
        if not uses:
            return (NO_LABELS,)
        return tuple(uses) if self._settings.shared_gpus else (agreed(uses),)

    def _of_pod(self, gpu: AttributedGpu, member: CgroupMembership) -> Mapping[str, str]:
        found = self._names.value.of(member)
        if found is None:
            self._names.soon()
            return NO_LABELS
        labels: Mapping[str, str]
        if found.name:
            labels = self._labels_of_container(found)
        else:
            own = [use.container for use in self._uses(gpu)]
            same_pod = [one for one in own if (one.pod, one.namespace) == (found.pod, found.namespace)]
            labels = agreed(self._labels_of_container(one) for one in same_pod or [found])
        return {**labels, "pod_uid": member.pod_uid} if self._settings.pod_uids else labels

    def _labels_of_container(self, container: Container) -> Mapping[str, str]:
        return {**self._labels_of_pod(container), **container_labels(container)}

    def _labels_of_pod(self, container: Container) -> Mapping[str, str]:
        labels = self._own_labels(container)
        if not self._settings.pod_uids:
            return labels
        pod = container.namespace, container.pod
        uid = self._names.value.uids.get(pod) or self._pod_labels.value.uids.get(pod)
        return {**labels, "pod_uid": uid} if uid else labels

    def _own_labels(self, container: Container) -> Mapping[str, str]:
        """Return labels from the pod's own labels; an unknown pod is queried once, ahead of the next refresh."""
        if not self._settings.pod_label_patterns:
            return NO_LABELS
        found = self._pod_labels.value.of(container)
        self._ask_ahead(self._labels_missed, container, known=found is not None)
        return found or NO_LABELS

    def _ask_ahead(self, missed: OrderedDict[Container, None], container: Container, *, known: bool) -> None:
        """Ask the API server before the next refresh, once for each container of which its last answer said nothing.

        Args:
            missed: Containers of which labels, or the image, were asked for; the oldest are forgotten: most have ended.
            container: The container.
            known: Whether the last answer had it.
        """
        if known:
            missed.pop(container, None)
        elif container not in missed:
            while len(missed) >= MAX_MISSED:
                missed.popitem(last=False)
            missed[container] = None
            self._pod_labels.soon()

    def _uses(self, gpu: AttributedGpu) -> tuple[Use, ...]:
        names = names_of(
            gpu.uuid, gpu.device, gpu.index, gi_id=gpu.gi_id, mig_uuids=gpu.mig_uuids, placement=gpu.gi_placement
        )
        pods = self._pods.value
        found = pods.of(names)
        if not found and gpu.gi_alone and not gpu.gi_placement:
            return pods.of_only_device(f"{gpu.uuid}/{gpu.gi_profile}")
        return found

    def _jobs_of(self, gpu: AttributedGpu) -> tuple[str, ...]:
        return self._jobs.value.get(f"{gpu.index}.{gpu.gi_id}" if gpu.gi_id else gpu.index, ())

    def _only_job(self, gpu: AttributedGpu) -> str:
        jobs = self._jobs_of(gpu)
        return jobs[0] if len(jobs) == 1 else ""

    def _ask_kubelet(self) -> PodUses | None:
        if self._client is None:
            if not self._settings.socket.exists():
                return None
            self._client = PodResources(self._settings.socket)
        uses = PodUses(self._client.allocations(), self._slices.value)
        if uses.unknown and not self._unknown_device and not self._settings.slices:
            _log.warning(
                "MIG devices of resource claims may stay without pods; set exporter.kubernetes_resource_slices, "
                "and allow the exporter's service account to list resourceslices",
                device=uses.unknown,
            )
        self._unknown_device = uses.unknown
        return uses

    def _read_names(self) -> PodNames | None:
        if self._settings.kubernetes == "auto" and not (self._settings.logs / "pods").exists():
            return None
        return read_names(self._settings.logs)

    def _read_users(self) -> Mapping[int, str]:
        return read_users(self._settings.passwd)

    @property
    def _asks_for_pods(self) -> bool:
        return bool(self._settings.pod_label_patterns) or self._settings.images

    def _slice_reader(self) -> Callable[[], SliceDevices | None]:
        if self._settings.api_server is None:
            return lambda: None
        reader = ResourceSliceReader(self._settings.api_server)

        def read() -> SliceDevices:
            devices = reader.read()
            if devices != self._slices.value:
                self._pods.soon()  # the kubelet's answer is joined with the devices that are known then
            return devices

        return read

    def _pod_label_reader(self) -> Callable[[], PodLabels | None]:
        wanted = self._settings
        if wanted.api_server is None:
            return lambda: None
        return PodLabelReader(wanted.api_server, wanted.pod_label_patterns, images=wanted.images).read

    def _job_reader(self, on_error: ErrorListener) -> Callable[[], Jobs | None]:
        directory = self._settings.job_directory
        if directory is None:
            return lambda: None
        return JobDirectory(directory, on_bad=lambda: on_error(JOBS)).jobs
