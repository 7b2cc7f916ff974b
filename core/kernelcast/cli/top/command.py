"""The command `kernelcast top`: reads a page of an exporter or a bridge, again and again, and draws it.

Everything runs on the main thread. A page goes through `kernelcast.view` into a `Picture`, which its `text` draws.
"""

import json
import math
import os
import select
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.live import Live

from kernelcast.cli.top.controls import Controls
from kernelcast.cli.top.target import (
    DEFAULTS,
    ServerCredentials,
    api_url,
    base_url,
    beside_programs,
    bridge_alerts,
    firing_alerts,
    get,
)
from kernelcast.runtime.command import command
from kernelcast.runtime.lifecycle import Shutdown
from kernelcast.view.model import SORTS, Alerts, Picture, Recent
from kernelcast.view.page import read
from kernelcast.view.rates import REPORT_SECONDS
from kernelcast.view.text import Screen
from kernelcast.wire.errors import ConfigurationError, PageError
from kernelcast.wire.standalone import directories

SMALLEST_INTERVAL_SECONDS: Final = 0.5
LIVE_SECONDS: Final = 2.0
"""Default time between two readings of the live screen."""
ONCE_SECONDS: Final = REPORT_SECONDS + 1.0
"""Longer than the exporter's interval, so that two readings differ."""
_AGE_SECONDS: Final = 1.0
"""Longest time between two drawings: the screen shows the age of the figures in seconds."""


@command
def top(  # noqa: PLR0913  a command line's options
    address: Annotated[
        str,
        typer.Argument(help="HOST:PORT or URL of an exporter or a bridge.", show_default="the first on this machine"),
    ] = "",
    *,
    prometheus: Annotated[
        str, typer.Option(metavar="URL", help="Where alerts are asked.", show_default="the bridge, if it knows them")
    ] = "",
    interval: Annotated[
        float | None,
        typer.Option(
            help="Seconds between two readings.", show_default="2; with --once 11, as exporters report every 10"
        ),
    ] = None,
    sort: Annotated[str, typer.Option(help=f"Order of the kernels: {', '.join(SORTS)}.")] = SORTS[0],
    text: Annotated[str, typer.Option("--filter", help="Only kernels, programs and GPUs with this text.")] = "",
    once: Annotated[bool, typer.Option("--once", help="Two readings, one picture, and end.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="With --once: as JSON.")] = False,
    username: Annotated[str, typer.Option(help="User of the server's web configuration.")] = "",
    password_file: Annotated[Path | None, typer.Option(help="File with the password.", show_default=False)] = None,
    prometheus_username: Annotated[str, typer.Option(help="User of that Prometheus, if it is another server.")] = "",
    prometheus_password_file: Annotated[
        Path | None, typer.Option(help="File with that user's password.", show_default=False)
    ] = None,
    ca_file: Annotated[
        Path | None, typer.Option(help="PEM certificates to trust.", show_default="the system's")
    ] = None,
) -> None:
    """Watch GPUs, programs, kernels, predictions, hints and alerts of an exporter or a bridge, live."""
    seconds = (ONCE_SECONDS if once else LIVE_SECONDS) if interval is None else interval
    if not SMALLEST_INTERVAL_SECONDS <= seconds < math.inf:
        raise ConfigurationError(f"--interval is {seconds}; the minimum is {SMALLEST_INTERVAL_SECONDS}; raise it")
    if sort not in SORTS:
        raise ConfigurationError(f"--sort is {sort!r}; it must be one of {', '.join(SORTS)}")
    if as_json and not once:
        raise ConfigurationError("--json needs --once: one document, not a stream")
    access = ServerCredentials(username, password_file, ca_file)
    server, api = _find_server(address, access), api_url(prometheus) if prometheus else ""
    other = ServerCredentials(prometheus_username, prometheus_password_file, ca_file, "--prometheus-")
    same = api.startswith(f"{server}/") and not prometheus_username
    reader = PageReader(server, access, api, access if same else other)
    controls = Controls(sort, text)
    if once:
        _once(reader, controls, seconds, as_json=as_json)
    elif not sys.stdout.isatty() or not sys.stdin.isatty():
        raise ConfigurationError("the live screen needs a terminal; use --once, or --once --json")
    else:
        _live(reader, controls, seconds)


class PageReader:
    """Reads the page of one server, and the alerts that fire. For one thread.

    The two have credentials of their own: a password is sent to the server that it is for.
    """

    def __init__(
        self,
        url: str,
        access: ServerCredentials,
        prometheus_api: str = "",
        prometheus_access: ServerCredentials = ServerCredentials(),  # noqa: B008  it is frozen
    ) -> None:
        self._url, self._access = url, access
        self._api, self._prometheus_access = prometheus_api, prometheus_access
        self.recent = Recent(f"{url}/metrics")

    def read(self, now_seconds: float) -> None:
        """Read the page and the alerts.

        Raises:
            PageError: The page cannot be read.
        """
        page = read(get(f"{self._url}/metrics", self._access))
        if not page.is_ours:
            raise PageError(
                f"{self._url}/metrics has no metrics of kernelcast; give an exporter's or a bridge's address"
            )
        self.recent.add(now_seconds, page)
        self.recent.alerts = self._alerts()

    def read_or_note(self, now_seconds: float) -> None:
        """Do the same as `read`; a failure becomes the `error` of the pictures, whose figures become old."""
        try:
            self.read(now_seconds)
            self.recent.error = ""
        except PageError as error:
            self.recent.error = str(error)

    def picture(self, now_seconds: float, controls: Controls) -> Picture:
        """What matters now, as the user wants to see it."""
        return self.recent.picture(now_seconds, sort=controls.sort, text=controls.text)

    def _alerts(self) -> Alerts:
        if self._api:
            try:
                return firing_alerts(self._api, self._prometheus_access)
            except PageError as error:
                return Alerts(None, str(error))
        if not self.recent.page.is_bridge:
            return Alerts(None, "Alertmanager sends them to a bridge; or give --prometheus URL")
        known = bridge_alerts(self._url, self._access)
        if known.firing is None:
            with suppress(PageError):  # a bridge without pages, or without a Prometheus behind them
                return firing_alerts(f"{self._url}/pages/api/v1", self._access)
        return known


def _find_server(address: str, access: ServerCredentials) -> str:
    """Return the given URL, or the first on this machine that answers: the exporter beside a program comes first.

    Raises:
        PageError: None answers.
    """
    if address:
        return base_url(address)
    beside = beside_programs(os.environ)
    for candidate in (*beside, *DEFAULTS):
        with suppress(PageError):
            get(f"{base_url(candidate)}/metrics", access)
            return base_url(candidate)
    if beside:
        reason = f"the exporter beside your programs ({', '.join(beside)}) does not answer yet"
    else:
        folders = " or ".join(directories(os.environ, os.getuid()))
        reason = f"no exporter beside a program of yours was found in {folders}"
    raise PageError(
        f"neither {' nor '.join(DEFAULTS)} answers, and {reason}; give the address of a bridge or an exporter"
    )


def _once(reader: PageReader, controls: Controls, interval: float, *, as_json: bool) -> None:
    reader.read(time.time())
    time.sleep(interval)
    reader.read(time.time())
    picture = reader.picture(time.time(), controls)
    if as_json:
        typer.echo(json.dumps(picture.document(), ensure_ascii=False))
    else:
        Console().print(Screen(picture, controls.order))


def _live(reader: PageReader, controls: Controls, interval: float) -> None:
    console = Console()
    reader.read(time.time())  # a wrong address is an error, not an empty screen
    now = time.time()
    with (
        # A second Ctrl-C ends a request that gets no answer, and must restore the terminal, which os._exit does not.
        Shutdown(exit_now=sys.exit).signals() as shutdown,
        keyboard() as keys,
        Live(console=console, screen=True, auto_refresh=False) as live,
    ):
        due = time.monotonic() + interval
        while not shutdown.requested:
            now = now if controls.paused else time.time()
            picture = reader.picture(now, controls)
            screen = Screen(picture, controls.order, keys=controls.line(), height=console.height)
            live.update(screen, refresh=True)
            try:
                pressed = keys(min(_AGE_SECONDS, max(0.0, due - time.monotonic())))
            except EOFError:  # SIGHUP, which comes too, asks every kernelcast process to reload and ends none
                return
            if controls.press(pressed):
                return
            if time.monotonic() >= due:
                due = time.monotonic() + interval
                if not controls.paused:
                    reader.read_or_note(time.time())


@contextmanager
def keyboard() -> Iterator[Callable[[float], str]]:
    """Yield a function that returns pressed keys without waiting for Enter; restores the terminal at the end."""
    try:
        descriptor = sys.stdin.fileno()
        before = termios.tcgetattr(descriptor)
    except (OSError, termios.error):  # no terminal behind it, as in a test
        yield lambda _wait_seconds: ""
        return
    tty.setcbreak(descriptor)
    try:
        yield Keys(descriptor)
    finally:
        with suppress(termios.error):  # the terminal is gone
            termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


class Keys:
    """Reads keys of a terminal."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._readable = select.poll()  # `select.select` refuses descriptors from 1,024 on
        self._readable.register(descriptor, select.POLLIN)

    def __call__(self, wait_seconds: float) -> str:
        """Keys that were pressed; waits for one, at most this time.

        Raises:
            EOFError: The terminal is gone.
        """
        try:
            if not self._readable.poll(wait_seconds * 1e3):
                return ""
            pressed = os.read(self._descriptor, 64)
        except InterruptedError:
            return ""
        except OSError as error:
            raise EOFError(str(error)) from error
        if not pressed:
            raise EOFError("the terminal was closed")
        return pressed.decode("utf-8", "ignore")
