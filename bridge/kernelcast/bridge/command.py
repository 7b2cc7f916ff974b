"""`kernelcast bridge`: reads the settings, prepares the process, starts `Bridge` and waits for SIGTERM or SIGINT."""

import gc
import os
from functools import partial
from typing import Annotated, Final

import typer

from kernelcast.bridge.modes import check
from kernelcast.bridge.service import Bridge
from kernelcast.bridge.settings import BridgeSettings
from kernelcast.runtime import logging
from kernelcast.runtime.allocation import keep_freed_end, return_large_blocks, share_one_heap
from kernelcast.runtime.command import DaemonOptions, daemon
from kernelcast.runtime.lifecycle import Shutdown
from kernelcast.runtime.reloading import reload
from kernelcast.runtime.service_manager import ServiceManager

SUPERVISION_SECONDS: Final = 0.5
"""Interval at which the main thread checks the consumer, and reports to systemd."""
YOUNG_OBJECTS: Final = 50_000
"""Number of new container objects that starts a collection of young objects. Python's default of 700 is passed 100
times while one long message of JSON is read, although none of its objects is garbage yet."""
RELOADED: Final = ("log",)
"""Settings that change on SIGHUP. The others name topics, sockets, sizes of tables and the share of the work."""


@daemon
def bridge(
    options: DaemonOptions,
    *,
    pages: Annotated[
        bool | None,
        typer.Option("--web.pages/--no-web.pages", help="Serve the dashboards at /pages (the default), or do not."),
    ] = None,
    prometheus_url: Annotated[
        str | None,
        typer.Option(
            "--pages.prometheus-url",
            metavar="URL",
            help="The Prometheus that answers the pages' queries.",
            show_default="none; the first screens come from the bridge itself",
        ),
    ] = None,
) -> None:
    """Expose metrics from Kafka to Prometheus, and write Alertmanager's notifications to Kafka."""
    flags = {"pages.enabled": pages, "pages.prometheus_url": prometheus_url}
    read = partial(options.settings, "bridge", BridgeSettings, flags=flags, checks=(check,))
    settings = read()
    return_large_blocks()
    share_one_heap()
    keep_freed_end()
    set_up_garbage_collector()
    manager = ServiceManager.from_environ(os.environ)
    with Shutdown().signals() as shutdown, Bridge(settings, manager=manager) as service:
        shutdown.on_reload(lambda: reload(settings, read, change, reloaded=RELOADED))
        supervise(service, shutdown, manager)
    logging.get_logger(__name__).info("bridge stopped")


def supervise(service: Bridge, shutdown: Shutdown, manager: ServiceManager) -> None:
    """Wait on the main thread until a stop is requested; report progress and state to systemd meanwhile.

    Raises:
        KernelcastError: The consumer has ended.
    """
    loop = manager.part("main")
    for _ in shutdown.every(SUPERVISION_SECONDS):
        service.wait(0)
        manager.report(service.readiness)
        loop.progressed()
    manager.stopping()


def change(settings: BridgeSettings) -> None:
    """Apply the settings in `RELOADED`."""
    logging.configure(settings.log)


def set_up_garbage_collector() -> None:
    """Make the garbage collector cheap for a process that reads many small objects; once, before threads start.

    Everything imported so far is exempt from collection. Reading a message must not change the collector: its state
    belongs to the whole process, and threads that switch it off and on can leave it off.
    """
    gc.collect()
    gc.freeze()
    _, *older_generations = gc.get_threshold()
    gc.set_threshold(YOUNG_OBJECTS, *older_generations)
