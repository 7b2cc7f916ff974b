"""The settings and parts of a running exporter that SIGHUP changes; `assembly` passes them to `runtime.reloading`."""

from dataclasses import dataclass
from typing import Final

from kernelcast.exporter.attribution.assembly import CurrentUsers
from kernelcast.exporter.daemon import Daemon
from kernelcast.exporter.nvml.counters_file import CountersFile
from kernelcast.exporter.nvml.dcgm_watch import DeviceMetrics
from kernelcast.exporter.nvml.isolation.isolated import IsolatedSampler
from kernelcast.exporter.settings import ExporterSettings
from kernelcast.runtime import logging

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
