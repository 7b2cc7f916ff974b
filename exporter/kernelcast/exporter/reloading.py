"""Applies changed settings on SIGHUP if they can change while the daemon runs, and logs those that need a restart."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from kernelcast.exporter.attribution.assembly import CurrentUsers
from kernelcast.exporter.daemon import Daemon
from kernelcast.exporter.nvml.counters_file import CountersFile
from kernelcast.exporter.nvml.devices import DeviceMetrics
from kernelcast.exporter.nvml.isolation.isolated import IsolatedSampler
from kernelcast.exporter.settings import ExporterSettings
from kernelcast.runtime import logging
from kernelcast.runtime.settings.service import restart_needed
from kernelcast.wire.errors import ConfigurationError

RELOADED: Final = (
    "log",
    "interval_seconds",
    "nvml_timeout_seconds",
    "process_metrics",
    "device_metrics",
    "dcgm_exporter_url",
    "kubernetes",
    "pod_resources_socket",
    "kubernetes_virtual_gpus",
    "job_mapping_directory",
    "kubernetes_pod_label_allowlist_regex",
    "kubernetes_images",
    "kubernetes_api_url",
    "kubernetes_node_name",
)
"""Settings that can change while running. The others name open sockets, files and topics, or sizes of tables."""

_log = logging.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Changeable:
    """The parts of a daemon that can change between two intervals.

    Attributes:
        daemon: The daemon's loop.
        sampler: Samples the GPUs.
        counters: The table of device metrics, and whether processes are sampled; the sampler's options come from it.
        device_metrics: Switches device metrics on and off.
        users: Attribution of GPUs to pods and jobs.
    """

    daemon: Daemon
    sampler: IsolatedSampler
    counters: CountersFile
    device_metrics: DeviceMetrics
    users: CurrentUsers

    def change(self, settings: ExporterSettings) -> None:
        """Apply new settings; called on the thread that runs the daemon's loop, between two intervals.

        Raises:
            MissingExtraError: `exporter.kubernetes` was switched on, and grpcio is not installed; nothing has changed.
        """
        # The users come first: if this raises, nothing has changed.
        self.users.change(settings)
        logging.configure(settings.log)
        self.daemon.change_interval(settings.interval_seconds)
        self.sampler.timeout_seconds = settings.nvml_timeout_seconds
        if self.counters.processes != settings.process_metrics:
            self.counters.processes = settings.process_metrics
            self.sampler.change(self.counters.options)
        self.device_metrics.change(settings)


def reload(parts: Changeable, started: ExporterSettings, read: Callable[[], ExporterSettings]) -> None:
    """Apply the settings that can change while running, and log those that cannot; invalid settings change nothing.

    Args:
        parts: The parts that change.
        started: The settings at the daemon's start, not those of the last reload: a setting that needs a restart is
            logged at every reload until the restart.
        read: Reads the settings again; raises ConfigurationError if they are invalid.
    """
    try:
        settings = read()
        parts.change(settings)
    except ConfigurationError as error:
        _log.error("settings are wrong; the old ones stay", reason=str(error))
        return
    if waiting := restart_needed(started, settings, reloaded=RELOADED):
        _log.warning("some settings take effect at the next start only", settings=",".join(waiting))
    _log.info("settings read again", interval_seconds=settings.interval_seconds, log_level=settings.log.level)
