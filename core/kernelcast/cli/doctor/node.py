"""Checks of this machine for exporter and probes: the socket between them, the web address and configuration file."""

import errno
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from kernelcast.cli.doctor.result import CheckLevel, CheckResult, fail, ok, warn
from kernelcast.runtime.web.config import read_web_config
from kernelcast.runtime.web.server import bind
from kernelcast.wire.errors import ConfigurationError

_CONNECT_SECONDS: Final = 2.0


def is_listening(path: Path) -> bool:
    """Whether an exporter accepts connections on its socket."""
    return _connection_error(path) is None


def check_socket(path: Path, *, starts: bool = False) -> Iterator[CheckResult]:
    """Whether programs can reach the exporter here.

    Args:
        path: The exporter's socket.
        starts: Whether this user is to start the exporter, which ends if it cannot make the socket.
    """
    check = "probe socket"
    try:
        mode = path.stat().st_mode
        is_writable = os.access(path, os.W_OK)
    except FileNotFoundError:
        yield _without_exporter(path, f"{path} is not there", starts=starts)
        return
    except OSError as error:
        yield fail(check, f"{path}: {error.strerror}", f"let the programs' users enter {path.parent}")
        return
    refusal, permissions = _connection_error(path), stat.filemode(mode)
    if not stat.S_ISSOCK(mode):
        yield fail(check, f"{path} is not a socket", "remove it and restart the exporter")
    elif not is_writable:
        state = f"{path} ({permissions}) cannot be written by user {os.getuid()}"
        yield fail(check, state, "put the user into the socket's group")
    elif refusal is None:
        yield ok(check, f"{path} ({permissions}), an exporter listens")
    elif isinstance(refusal, ConnectionRefusedError):
        state = f"{path} was left behind by an exporter that has ended: nobody listens"
        yield _without_exporter(path, state, starts=starts)
    else:
        yield fail(check, f"{path}: {refusal.strerror or refusal}", "stop what listens there, and restart the exporter")


def _connection_error(path: Path) -> OSError | None:
    """The error of an attempt to connect, as a program makes one; None after a success."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as attempt:
        attempt.settimeout(_CONNECT_SECONDS)
        try:
            attempt.connect(str(path))
        except OSError as error:
            return error
    return None


def _without_exporter(path: Path, state: str, *, starts: bool) -> CheckResult:
    """The result where no exporter listens: a failure if this user is to start one and may not make its socket."""
    nearest = next((parent for parent in path.parents if os.access(parent, os.F_OK)), Path("/"))
    if not starts or os.access(nearest, os.W_OK | os.X_OK):
        return warn("probe socket", state, "start `kernelcast exporter` on this machine")
    return CheckResult(
        "probe socket",
        CheckLevel.FAIL,
        f"probe socket {path} cannot be opened: {os.strerror(errno.EACCES)}",
        f"name one that user {os.getuid()} can make with --probe.socket",
        wrong_settings=True,
    )


def check_listen_address(address: str, *, starts: bool) -> Iterator[CheckResult]:
    """Whether the exporter can serve its page at an address.

    Args:
        address: `HOST:PORT` or `:PORT`.
        starts: Whether an exporter is to be started; else one runs, and may have the port.
    """
    try:
        bind(address).close()
    except ConfigurationError as error:
        problem, _, remedy = str(error).rpartition("; ")
        if starts:
            yield CheckResult("web address", CheckLevel.FAIL, problem, remedy, wrong_settings=True)
        else:
            yield ok("web address", f"{address} is in use, and an exporter runs here")
    else:
        yield ok("web address", f"{address} is free")


def check_web_config(path: Path | None) -> Iterator[CheckResult]:
    """Whether the web configuration file can be used."""
    if path is None:
        yield ok("web configuration", "none: plain HTTP for everybody who can connect")
        return
    try:
        config = read_web_config(path)
    except ConfigurationError as error:
        yield fail("web configuration", "; ".join(str(error).splitlines()), "mend the file")
        return
    tls = "TLS" if config.tls_server_config is not None else "no TLS"
    users = len(config.basic_auth_users)
    if users and config.tls_server_config is None:
        yield warn("web configuration", f"{users} users, {tls}", "passwords travel in clear; add tls_server_config")
    else:
        yield ok("web configuration", f"{tls}, {users} users")
