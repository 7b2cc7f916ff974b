"""Checks of this machine for exporter and probes: the socket between them, and the web configuration file."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from kernelcast.cli.doctor.result import CheckResult, fail, ok, warn
from kernelcast.runtime.web.config import read_web_config
from kernelcast.wire.errors import ConfigurationError


def check_socket(path: Path) -> Iterator[CheckResult]:
    """Whether programs can reach the exporter here."""
    folder = path.parent
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        if folder.is_dir():
            yield warn("probe socket", f"{path} is not there", "start `kernelcast exporter` on this machine")
        else:
            yield warn(
                "probe socket",
                f"{folder} is not there",
                f"start `kernelcast exporter`; it makes {folder} where it may, else make it for the exporter's user",
            )
        return
    except OSError as error:
        yield fail("probe socket", f"{path}: {error.strerror}", f"let the programs' users enter {folder}")
        return
    if not stat.S_ISSOCK(mode):
        yield fail("probe socket", f"{path} is not a socket", "remove it and restart the exporter")
    elif not os.access(path, os.W_OK):
        yield fail(
            "probe socket",
            f"{path} ({stat.filemode(mode)}) cannot be written by user {os.getuid()}",
            "put the user into the socket's group",
        )
    else:
        yield ok("probe socket", f"{path} ({stat.filemode(mode)})")


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
