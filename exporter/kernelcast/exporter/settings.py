"""Settings of `kernelcast exporter`."""

import re
from pathlib import Path
from typing import Annotated, Any, Final, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field

from kernelcast.exporter.totals.aggregate import DEFAULT_DETAILED, DEFAULT_KERNELS, DEFAULT_RETIRE_SECONDS
from kernelcast.runtime.settings.service import OptionName, Remedy, Section, ServiceSettings, WebSettings

ALL_KERNELS: Final = "all"
KUBELET_SOCKET: Final = Path("/var/lib/kubelet/pod-resources/kubelet.sock")
DCGM_EXPORTER_URL: Final = "http://127.0.0.1:9400/metrics"


def _as_number(value: Any) -> Any:
    return None if value == ALL_KERNELS else value


def _as_pattern(value: str) -> str:
    try:
        re.compile(value)
    except re.error as error:
        raise ValueError(f"is no regular expression: {error}") from None
    return value


def _as_switch(value: Any) -> Any:
    """Convert true and false to `on` and `off`, because YAML reads a bare `on` as true."""
    return {True: "on", False: "off"}.get(value, value) if isinstance(value, bool) else value


OnOff = Annotated[Literal["on", "off"], BeforeValidator(_as_switch), Remedy("write on or off")]
Pattern = Annotated[str, AfterValidator(_as_pattern), Remedy("write a regular expression, such as ^app$")]
WindowSeconds = Annotated[
    float, Field(ge=1, le=86_400, allow_inf_nan=False), Remedy("give seconds, above the interval and at most a day")
]
Switch = Annotated[Literal["auto", "on", "off"], BeforeValidator(_as_switch), Remedy("write auto, on or off")]


class SpoolSettings(Section):
    """Settings of the spool, which keeps messages while Kafka is away.

    Attributes:
        directory: Directory on disk; a relative path is below `state_directory`. With null, or a relative path without
            `state_directory`, messages are kept in memory only, and lost if there is no room.
        max_bytes: Size limit on disk; beyond it the oldest messages are dropped and counted.
        max_age_seconds: Older messages are dropped and counted.
        memory_bytes: Size limit in memory of a topic's unconfirmed messages; beyond it they are written to disk.
        memory_seconds: How long messages stay in memory only; `kill -9` may lose these.
        replay_bytes_per_second: Replay speed of each topic after Kafka has returned, in addition to new messages.
        replay_jitter_seconds: Longest random wait before a replay, so that a fleet does not start at the same time.
    """

    directory: Path | None = Path("spool")
    max_bytes: Annotated[int, Field(ge=2**20, le=2**40), Remedy("give bytes, at least 1 MiB")] = 256 * 2**20
    max_age_seconds: Annotated[float, Field(ge=60, allow_inf_nan=False)] = 86_400.0
    memory_bytes: Annotated[int, Field(ge=0, le=32 * 2**20)] = 8 * 2**20
    memory_seconds: Annotated[float, Field(ge=1, le=3600, allow_inf_nan=False)] = 30.0
    replay_bytes_per_second: Annotated[float, Field(ge=1024, allow_inf_nan=False)] = 1.0 * 2**20
    replay_jitter_seconds: Annotated[float, Field(ge=0, le=3600, allow_inf_nan=False)] = 10.0


class StandingSettings(Section):
    """Shortest time without progress after which a program stands still; its own gaps raise it.

    Attributes:
        training_seconds: While it trains.
        long_seconds: In evaluation, checkpoint, compilation, and in work between steps that no mark shows.
    """

    training_seconds: Annotated[float, Field(ge=1, le=86_400, allow_inf_nan=False)] = 60.0
    long_seconds: Annotated[float, Field(ge=1, le=86_400, allow_inf_nan=False)] = 600.0


class NcclInspectorSettings(Section):
    """Files of NVIDIA's NCCL Inspector, a plugin of NCCL.

    Attributes:
        directory: Its NCCL_INSPECTOR_DUMP_DIR; null reads none.
        interval_seconds: Its NCCL_INSPECTOR_DUMP_THREAD_INTERVAL_MICROSECONDS, in seconds; after three of them without
            a new file its series end.
    """

    directory: Path | None = None
    interval_seconds: Annotated[
        float, Field(ge=30, le=3600, allow_inf_nan=False), Remedy("the plugin writes each 30 s at most")
    ] = 30.0


def _as_page_url(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.query:
        raise ValueError(f"is {value!r}, which is no URL of a page")
    return value


class ScrapeSettings(Section):
    """Pages of inference engines and of other vendors' exporters on this node, where no Prometheus reads them.

    Attributes:
        urls: Their URLs.
        pods: Whether to read pods of this node that ask for it by the annotation kernelcast.io/scrape, such as
            `8000/metrics`; needs the right to list pods.
    """

    urls: tuple[
        Annotated[str, AfterValidator(_as_page_url), Remedy("write http://HOST:PORT/metrics, without a user")], ...
    ] = ()
    pods: OnOff = "off"


class ExporterSettings(ServiceSettings):
    """Settings of the node daemon.

    Attributes:
        interval_seconds: Time between two samples of everything.
        hostname: The node's name on every series; if empty, the system's host name.
        hostname_label: Label of the host in the site's dcgm-exporter dashboards: `Hostname` up to 4.8.2. After it
            `hostname`, which series then have beside `Hostname`.
        socket_path: Socket on which programs report their kernels.
        allowed_uids: Users whose programs may report; null allows every user of the node.
        state_directory: Directory of totals that survive a crash; with null, a crash resets every counter.
        spool: Messages that wait while Kafka is away.
        standing: When a program stands still.
        kernels: Number of kernels with a series of their own per program and GPU; None, written `all`, for no limit.
        detailed_kernels: Number of those with histogram buckets.
        retire_after_seconds: How long an ended program is still written.
        nvml: Whether to read the GPUs; `auto` continues without a driver.
        nvml_timeout_seconds: Time limit of an NVML call; beyond it the process that calls NVML is replaced.
        to_kafka: Whether to write to Kafka and read hints from it; with `off`, `/metrics` is the only output.
        device_metrics: Whether to write NVML's metrics; `auto` leaves them to a dcgm-exporter if one answers here.
        dcgm_exporter_url: URL of that dcgm-exporter.
        counters_file: Table of the device rows to write, in dcgm-exporter's format; null uses our own table.
        naming: Whether to write device metrics under DCGM's names alone, or OpenTelemetry's beside them.
        xid_count_window_seconds: Window of `DCGM_EXP_XID_ERRORS_COUNT`; dcgm-exporter's `--xid-count-window-size`.
        clock_events_count_window_seconds: Window of `DCGM_EXP_CLOCK_EVENTS_COUNT`, likewise.
        nvlink_links: Metrics of each NVLink: whether it is up (`state`), or also its traffic and errors (`all`).
        process_metrics: Whether to write each process's use of a GPU.
        nvml_recording: Recording of NVML to replay instead, with `source="replayed"`; for machines without a GPU.
        attribution: Where the pod and job of a GPU stand: on each of its series (`labels`), on one series of their own
            (`info`), or nowhere (`off`).
        kubernetes: Whether to query the kubelet for the pods of GPUs; `auto` does so if its socket exists.
        pod_resources_socket: The kubelet's socket.
        kubernetes_virtual_gpus: Writes the series of a GPU that containers share once for each of them, as
            dcgm-exporter does under the same name; otherwise once, with the labels on which all agree.
        kubernetes_pod_label_allowlist_regex: Labels of pods whose keys match one of these become labels of their GPUs'
            series; empty for none. Needs the right to list pods.
        kubernetes_images: Whether to query the image of each program's container, whose change is a deploy; needs
            the right to list pods.
        kubernetes_pod_uid: Whether series with a pod have its uid, as dcgm-exporter under KUBERNETES_ENABLE_POD_UID.
        kubernetes_resource_slices: Whether to read this node's ResourceSlices, which say which GPU or MIG instance a
            device of a resource claim is; needs the right to list resourceslices.
        kubernetes_api_url: URL of the API server; if empty, the address in every pod's environment.
        kubernetes_node_name: The node's name in Kubernetes; if empty, `hostname`.
        kernel_log: Whether to count XIDs in the kernel's log as well, including those without a running exporter;
            needs a right that is not given by default.
        nccl_inspector: Bus bandwidth and time of NCCL's operations, where its plugin writes them.
        scrape: Pages of inference engines and of other vendors' exporters.
        tpu: Whether to query programs that use TPUs; `auto` does so if the node has any.
        tpu_ports: Ports of such programs; if empty, TPU_RUNTIME_METRICS_PORTS, or 8431.
        job_mapping_directory: Directory in which a scheduler's prolog lists each GPU's jobs, as for dcgm-exporter.
    """

    web: WebSettings = WebSettings(listen_address=":19400")
    interval_seconds: Annotated[
        float,
        Field(ge=0.1, le=3600, allow_inf_nan=False),
        Remedy("10 suits most; to see single kernels use the probe, which times each launch"),
        OptionName("--interval"),
    ] = 10.0
    hostname: Annotated[str, Field(max_length=253)] = ""
    hostname_label: Literal["Hostname", "hostname"] = "Hostname"
    socket_path: Annotated[Path, OptionName("--probe.socket")] = Path("/run/kernelcast/probe.sock")
    allowed_uids: frozenset[Annotated[int, Field(ge=0)]] | None = None
    state_directory: Annotated[Path | None, OptionName("--state.directory")] = Path("/var/lib/kernelcast/exporter")
    spool: SpoolSettings = SpoolSettings()
    standing: StandingSettings = StandingSettings()
    kernels: Annotated[
        Annotated[int, Field(ge=1)] | None, BeforeValidator(_as_number), Remedy("give a number, or all")
    ] = DEFAULT_KERNELS
    detailed_kernels: Annotated[int, Field(ge=0)] = DEFAULT_DETAILED
    retire_after_seconds: Annotated[
        float, Field(ge=1, le=86_400 * 30, allow_inf_nan=False), Remedy("stay above two intervals")
    ] = DEFAULT_RETIRE_SECONDS
    nvml: Switch = "auto"
    nvml_timeout_seconds: Annotated[
        float, Field(ge=0.1, le=600, allow_inf_nan=False), Remedy("5 suits most; the other metrics wait no longer")
    ] = 5.0
    to_kafka: Annotated[OnOff, OptionName("--kafka")] = "on"
    device_metrics: Switch = "auto"
    dcgm_exporter_url: str = DCGM_EXPORTER_URL
    counters_file: Path | None = None
    naming: Annotated[Literal["dcgm", "both"], Remedy("write dcgm or both")] = "dcgm"
    xid_count_window_seconds: WindowSeconds = 300.0
    clock_events_count_window_seconds: WindowSeconds = 300.0
    nvlink_links: Annotated[
        Literal["off", "state", "all"], BeforeValidator(_as_switch), Remedy("write off, state or all")
    ] = "state"
    process_metrics: bool = True
    nvml_recording: Path | None = None
    attribution: Annotated[
        Literal["labels", "info", "off"], BeforeValidator(_as_switch), Remedy("write labels, info or off")
    ] = "labels"
    kubernetes: Switch = "auto"
    pod_resources_socket: Path = KUBELET_SOCKET
    kubernetes_virtual_gpus: bool = False
    job_mapping_directory: Path | None = None
    kubernetes_pod_label_allowlist_regex: tuple[Pattern, ...] = ()
    kubernetes_images: bool = False
    kubernetes_pod_uid: bool = False
    kubernetes_resource_slices: bool = False
    kubernetes_api_url: str = ""
    kubernetes_node_name: str = ""
    kernel_log: OnOff = "off"
    nccl_inspector: NcclInspectorSettings = NcclInspectorSettings()
    scrape: ScrapeSettings = ScrapeSettings()
    tpu: Switch = "auto"
    tpu_ports: tuple[Annotated[int, Field(ge=1, le=65_535)], ...] = ()
