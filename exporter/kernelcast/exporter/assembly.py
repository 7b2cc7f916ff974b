"""Builds the daemon's parts from the settings, runs its loop, and closes the parts in reverse order.

`command.py` calls `run` on the main thread, and it returns when the process is to end. Every other module of the daemon
gets its collaborators here; none imports this one.
"""

import gc
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry

from kernelcast.exporter import reloading
from kernelcast.exporter.attribution.assembly import CurrentUsers
from kernelcast.exporter.attribution.programs import ProgramUsers
from kernelcast.exporter.daemon import Daemon, DaemonParts
from kernelcast.exporter.delivery.output import KafkaOutput, kafka_output
from kernelcast.exporter.delivery.publish import SERVICE_NAME, SamplePublisher
from kernelcast.exporter.exposition import IntervalExposition
from kernelcast.exporter.hints.inbox import HintInbox, HintReader, InboxByTopic
from kernelcast.exporter.hints.orders import OrderInbox, StoppedFile
from kernelcast.exporter.hints.outcomes import OutcomeRelay
from kernelcast.exporter.hints.pauses import AlertInbox, PausedPrograms, PolicyInbox
from kernelcast.exporter.instruments import Instruments
from kernelcast.exporter.kernel_log import kernel_log_source
from kernelcast.exporter.nccl_inspector import nccl_inspector_source
from kernelcast.exporter.nvml.control import ControlSocket
from kernelcast.exporter.nvml.counters_file import CountersFile
from kernelcast.exporter.nvml.dcgm_watch import DeviceMetrics
from kernelcast.exporter.nvml.devices import KnownGpus, boot_id, open_nvml, pynvml_for
from kernelcast.exporter.nvml.isolation.isolated import IsolatedSampler
from kernelcast.exporter.nvml.otel_names import SOURCE_ROWS
from kernelcast.exporter.nvml.source import NvmlSource
from kernelcast.exporter.pipeline import Pipeline
from kernelcast.exporter.programs.devices import DeviceResolver
from kernelcast.exporter.programs.limits import ProbeLimits
from kernelcast.exporter.programs.server import ProbeServer
from kernelcast.exporter.programs.standing import StandingLimits
from kernelcast.exporter.schedule import phase_of
from kernelcast.exporter.scrape import scrape_source
from kernelcast.exporter.scrape.gpus import NodeGpu
from kernelcast.exporter.settings import ExporterSettings
from kernelcast.exporter.state import StateFile
from kernelcast.exporter.totals.aggregate import Aggregator
from kernelcast.exporter.totals.report import Source
from kernelcast.exporter.tpu.assembly import tpu_source
from kernelcast.runtime import logging
from kernelcast.runtime.allocation import return_freed_memory, share_one_heap
from kernelcast.runtime.kafka import connect
from kernelcast.runtime.kafka.consumer import Consumer
from kernelcast.runtime.kafka.consumer_metrics import ConsumerMetrics
from kernelcast.runtime.kafka.deadletter import DeadLetters
from kernelcast.runtime.kafka.producer import Producer
from kernelcast.runtime.lifecycle import Shutdown
from kernelcast.runtime.reloading import reload as reload_settings
from kernelcast.runtime.service_manager import ServiceManager
from kernelcast.runtime.threads import Worker
from kernelcast.runtime.web.landing import Front
from kernelcast.runtime.web.server import WebServer
from kernelcast.view.first_page import FirstPage
from kernelcast.view.html import STYLE
from kernelcast.view.page import read
from kernelcast.wire.identity import Device
from kernelcast.wire.topics import ALERTS, HINTS, ORDERS, POLICY
from kernelcast.wire.tuning.pauses import PAUSED_FILE, SPACES_FILE

YOUNG_OBJECTS: Final = 20_000
"""Objects after which the garbage collector looks at the young ones: an interval makes as many, and few stay."""
READER_STOP_SECONDS: Final = 5.0
"""Longest wait at the end for each thread that reads Kafka; it notices the stop within `inbox.READ_SECONDS`."""

_log = logging.get_logger(__name__)


def run(
    settings: ExporterSettings,
    shutdown: Shutdown,
    *,
    reload: Callable[[], ExporterSettings],
    manager: ServiceManager | None = None,
) -> None:
    """Run the daemon until a stop is requested.

    Args:
        settings: The daemon's settings.
        shutdown: Signals for stopping and reloading.
        reload: Reads the settings again; raises ConfigurationError if they are invalid, and the old ones stay in use.
        manager: systemd, where it started this process.

    Raises:
        ConfigurationError: An address, a directory, a property or the probe's socket cannot be used.
        SourceError: The GPUs cannot be used.
    """
    share_one_heap()
    connect.check(settings.kafka)
    with assembled(settings, shutdown, manager) as (daemon, web, changeable):
        shutdown.on_reload(lambda: reload_settings(settings, reload, changeable.change, reloaded=reloading.RELOADED))
        # Objects made at start live as long as the process, so the garbage collector need not traverse them again.
        gc.collect()
        gc.freeze()
        _, *older_generations = gc.get_threshold()
        gc.set_threshold(YOUNG_OBJECTS, *older_generations)
        return_freed_memory()
        _log.info("exporter runs", metrics=f"{web.url}/metrics", socket=str(settings.socket_path))
        daemon.run(shutdown)
    # What Kafka has not taken by now was logged as a warning.
    _log.info("exporter stopped", state_saved_in=str(settings.state_directory or ""))


@dataclass(frozen=True, slots=True)
class DaemonAssembly:
    """Objects that most parts are made from.

    Attributes:
        settings: The daemon's settings.
        hostname: Name of the node in samples.
        registry: The exporter's own metrics.
        counts: Counters among them that several parts use.
        stack: Closes the parts, the last one first.
    """

    settings: ExporterSettings
    hostname: str
    registry: CollectorRegistry
    counts: Instruments
    stack: ExitStack

    @property
    def is_of_this_machine(self) -> bool:
        """Whether the GPUs are here; the GPUs, pids and pods of a recording belong to another machine."""
        return self.settings.nvml_recording is None


@dataclass(frozen=True, slots=True)
class NodeParts:
    """Sources of samples of one node.

    Attributes:
        sampler: The process that calls NVML.
        counters: The device rows that are written.
        writing: Whether device rows are written.
        users: Pods and jobs that use the GPUs.
        server: The probes' socket.
        sources: All sources, in the order in which they are polled.
    """

    sampler: IsolatedSampler
    counters: CountersFile
    writing: DeviceMetrics
    users: CurrentUsers
    server: ProbeServer
    sources: list[Source]


@contextmanager
def assembled(
    settings: ExporterSettings, shutdown: Shutdown, manager: ServiceManager | None = None
) -> Iterator[tuple[Daemon, WebServer, reloading.Changeable]]:
    """Start all parts and yield the daemon, ready for its loop; all parts are stopped at the end of the block."""
    registry = CollectorRegistry()
    manager = manager or ServiceManager()
    with ExitStack() as stack:
        assembly = DaemonAssembly(
            settings, settings.hostname or platform.node(), registry, Instruments(registry), stack
        )
        state, aggregator = _memory(settings, stack)
        node = _node_parts(assembly, state)
        out = stack.enter_context(kafka_output(settings, assembly.hostname, registry))
        exposition = IntervalExposition(registry, hostname_label=settings.hostname_label)
        directory = settings.socket_path.parent
        pauses = PausedPrograms(
            assembly.hostname, StoppedFile(directory, PAUSED_FILE), StoppedFile(directory, SPACES_FILE)
        )
        hints, *orders = _hint_readers(assembly, node.server, out.producer, shutdown, pauses)
        pipeline = _pipeline(assembly, node, out, state, aggregator)
        parts = DaemonParts(
            pipeline=pipeline,
            aggregator=aggregator,
            exposition=exposition,
            counts=assembly.counts,
            state=state,
            after=lambda: _after_interval(assembly, node, pauses, out.producer),
            uses_kafka=settings.to_kafka == "on",
            kafka_ready=lambda: _first_trouble(*(part.ready() for part in (out.producer, hints) if part is not None)),
        )
        daemon = Daemon(
            parts, interval_seconds=settings.interval_seconds, phase=phase_of(assembly.hostname), manager=manager
        )
        web = _web_server(assembly, exposition, daemon, manager)
        node.server.page = f"{web.url}/"
        node.server.start()
        for reader in (hints, *orders):
            if reader is not None:
                stack.enter_context(_reading(reader, shutdown))
        yield daemon, web, reloading.Changeable(daemon, node.sampler, node.counters, node.writing, node.users)


def _memory(settings: ExporterSettings, stack: ExitStack) -> tuple[StateFile | None, Aggregator]:
    """Return the aggregator with the totals of the last run, and the file that they came from, if there is one."""
    aggregator = Aggregator(
        max_kernels=settings.kernels,
        detailed_kernels=settings.detailed_kernels,
        retire_after_seconds=settings.retire_after_seconds,
        epoch_ns=time.time_ns(),
    )
    if settings.state_directory is None:
        return None, aggregator
    state = StateFile(settings.state_directory).open()
    stack.callback(state.close)
    if state.load(aggregator):
        _log.info("totals restored", programs=len(aggregator.members))
    return state, aggregator


def _node_parts(assembly: DaemonAssembly, state: StateFile | None) -> NodeParts:
    """Open NVML, the probes' socket and every other source; the stack closes them."""
    settings, stack, counts = assembly.settings, assembly.stack, assembly.counts
    counters = CountersFile(
        settings.counters_file,
        processes=settings.process_metrics,
        nvlink=settings.nvlink_links,
        sources=SOURCE_ROWS if settings.naming == "both" else (),
    )
    sampler = IsolatedSampler(
        counters.options, timeout_seconds=settings.nvml_timeout_seconds, nvml=pynvml_for(settings)
    )
    stack.callback(sampler.close)
    nvml = open_nvml(settings, sampler, hostname=assembly.hostname, on_error=counts.nvml_error, counters=counters)
    users = stack.enter_context(CurrentUsers(settings, assembly.registry))
    if nvml is not None and assembly.is_of_this_machine:
        nvml.users = users
    server = _probe_server(assembly, nvml, state)
    server.name_images(users.image_of_pid)
    others = _other_sources(assembly, nvml, users)
    writing = stack.enter_context(DeviceMetrics(settings, has_gpus=nvml is not None))
    programs = ProgramUsers(server.processes, users.labels_of_pid)
    control = _control(settings.state_directory, sampler) if nvml is not None else []
    sources: list[Source] = [server, programs, *control, *_gpus(nvml, counts, writing), *others]
    for source in sources:
        stack.callback(source.close)
    return NodeParts(sampler, counters, writing, users, server, sources)


def _other_sources(assembly: DaemonAssembly, nvml: NvmlSource | None, users: CurrentUsers) -> list[Source]:
    """The sources that the settings switch on: TPUs, the kernel's log, NCCL Inspector, inference engines."""
    settings, hostname, registry = assembly.settings, assembly.hostname, assembly.registry

    def devices() -> Sequence[Device]:
        return nvml.devices if nvml is not None else ()

    def gpus() -> Sequence[NodeGpu]:
        reading = nvml.reading if nvml is not None else None
        return [
            NodeGpu(gpu.uuid, gpu.index, gpu.gi_id, tuple(one.pid for one in gpu.processes), users.users_of(gpu))
            for gpu in (reading.gpus if reading is not None else ())
        ]

    made = (
        tpu_source(settings, hostname=hostname, registry=registry),
        kernel_log_source(settings, hostname=hostname, registry=registry, devices=devices),
        nccl_inspector_source(settings, hostname=hostname, registry=registry, devices=devices),
        scrape_source(settings, hostname=hostname, registry=registry, gpus=gpus),
    )
    return [source for source in made if source]


def _pipeline(
    assembly: DaemonAssembly, node: NodeParts, out: KafkaOutput, state: StateFile | None, aggregator: Aggregator
) -> Pipeline:
    own_boot_id = boot_id() if assembly.is_of_this_machine else ""
    publisher = SamplePublisher(out.sender, hostname_label=assembly.settings.hostname_label, boot_id=own_boot_id)
    outcomes = OutcomeRelay(
        node.server, aggregator, out.sender, hostname=assembly.hostname, count=assembly.counts.outcome
    )
    save = state.save if state is not None else None
    return Pipeline(node.sources, aggregator, publisher, save_state=save, relay_outcomes=outcomes.relay)


def _web_server(
    assembly: DaemonAssembly, exposition: IntervalExposition, daemon: Daemon, manager: ServiceManager
) -> WebServer:
    web = WebServer(
        assembly.settings.web,
        title="exporter",
        metrics=exposition.answer,
        healthy=daemon.healthy,
        ready=daemon.ready,
        facts=daemon.facts,
        front=Front(FirstPage(lambda: read(exposition.page().decode())).body, STYLE),
    )
    web.progressed = manager.part("web").progressed
    web.measure(assembly.registry)
    return assembly.stack.enter_context(web)


def _gpus(nvml: NvmlSource | None, counts: Instruments, writing: DeviceMetrics) -> list[Source]:
    return [] if nvml is None else [KnownGpus(nvml, lambda: counts.device_metrics(off=writing.off))]


def _control(directory: Path | None, sampler: IsolatedSampler) -> list[Source]:
    try:
        return [] if directory is None else [ControlSocket(directory, sampler)]
    except OSError as error:
        _log.warning("no GPU can be released by command", directory=str(directory), reason=str(error))
        return []


def _probe_server(assembly: DaemonAssembly, nvml: NvmlSource | None, state: StateFile | None) -> ProbeServer:
    resolver = DeviceResolver(assembly.hostname, lambda: nvml.devices if nvml is not None else ())
    server = ProbeServer(
        assembly.settings.socket_path,
        clock=time.time_ns,
        registry=assembly.registry,
        devices=resolver,
        allowed_uids=assembly.settings.allowed_uids,
        limits=ProbeLimits(standing=StandingLimits(**assembly.settings.standing.model_dump())),
    )
    if state is not None:
        server.keep(state.final_reports, state.hint_receivers, state.outcome_log)
        state.after_save = server.saved
    return server


def _after_interval(
    assembly: DaemonAssembly, node: NodeParts, pauses: PausedPrograms, producer: Producer | None
) -> None:
    if producer is not None:
        producer.poll()  # a node without samples sends nothing, and is to hear of an outage of Kafka all the same
    assembly.counts.nvml(node.sampler)
    pauses.apply(node.server.processes())


def _hint_readers(
    assembly: DaemonAssembly, server: ProbeServer, producer: Producer | None, shutdown: Shutdown, pauses: PausedPrograms
) -> tuple[HintReader | None, ...]:
    """Make the readers of hints, and of orders, alerts and policy, which limit them; None without Kafka.

    Orders that the last run of the exporter wrote to the file are in force until the topic has been read.
    """
    if producer is None:
        return (None,)
    stopped = StoppedFile(assembly.settings.socket_path.parent)
    server.stop(stopped.read())
    dead_letters = DeadLetters(producer, registry=assembly.registry)
    dead_letters.expect(HINTS.name, ORDERS.name, POLICY.name)

    metrics = ConsumerMetrics(assembly.registry)

    def connect() -> Consumer:
        group_id = f"{SERVICE_NAME}-{assembly.hostname}"
        return Consumer(assembly.settings.kafka, group_id=group_id, metrics=metrics)

    def limits() -> InboxByTopic:
        orders = OrderInbox(assembly.hostname, server, stopped, dead_letters)
        return InboxByTopic(
            {
                ORDERS.name: orders,
                ALERTS.name: AlertInbox(pauses),
                POLICY.name: PolicyInbox(pauses, server.teach, dead_letters),
            }
        )

    return (
        HintReader(connect, lambda: HintInbox(server, dead_letters, count=assembly.counts.hint), shutdown),
        HintReader(connect, limits, shutdown, (ORDERS.name, ALERTS.name, POLICY.name)),
    )


def _first_trouble(*answers: tuple[bool, str]) -> tuple[bool, str]:
    """Return the first (ready, reason) that is not ready; else (True, "")."""
    return next((answer for answer in answers if not answer[0]), (True, ""))


@contextmanager
def _reading(reader: HintReader, shutdown: Shutdown) -> Iterator[None]:
    """Read hints on a separate thread, for the duration of the block."""
    thread = Worker("hints", reader.run)
    thread.start()
    try:
        yield
    finally:
        shutdown.request()
        thread.stop(READER_STOP_SECONDS)
