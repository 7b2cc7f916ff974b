"""The part of the settings that `kernelcast doctor` reads, with the exporter's names for its paths and addresses."""

from pathlib import Path
from typing import Final

from pydantic import ConfigDict

from kernelcast.runtime.settings.service import KafkaSettings, LogSettings, Section, WebSettings

DEFAULT_SOCKET: Final = Path("/run/kernelcast/probe.sock")
KUBELET_SOCKET: Final = Path("/var/lib/kubelet/pod-resources/kubelet.sock")
DCGM_EXPORTER_URL: Final = "http://127.0.0.1:9400/metrics"


class DoctorSettings(Section):
    """Settings of all services."""

    kafka: KafkaSettings = KafkaSettings()
    log: LogSettings = LogSettings()


class SpoolPlace(Section):
    """Directory and size limit of the spool, which keeps messages while Kafka is away."""

    model_config = ConfigDict(extra="ignore")

    directory: Path | None = Path("spool")
    max_bytes: int = 256 * 2**20


class NodeSettings(Section):
    """The part of the section `exporter` that the checks need; the exporter itself judges the rest."""

    model_config = ConfigDict(extra="ignore")

    web: WebSettings = WebSettings(listen_address=":19400")
    to_kafka: bool = True
    socket_path: Path = DEFAULT_SOCKET
    state_directory: Path | None = Path("/var/lib/kernelcast/exporter")
    spool: SpoolPlace = SpoolPlace()
    dcgm_exporter_url: str = DCGM_EXPORTER_URL
    pod_resources_socket: Path = KUBELET_SOCKET
    job_mapping_directory: Path | None = None
    tpu: str = "auto"
    tpu_ports: tuple[int, ...] = ()

    @property
    def spool_directory(self) -> Path | None:
        """Directory of the spool; a relative path is below `state_directory`. None without a spool."""
        below, place = self.state_directory, self.spool.directory
        if place is None or place.is_absolute():
            return place
        return below / place if below is not None else None
