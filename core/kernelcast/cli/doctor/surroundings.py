"""Checks of the exporter's node: the kubelet, a scheduler's job files, a TPU, a dcgm-exporter, its disk."""

import errno
import os
import shutil
import socket
import stat
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from http.client import HTTPException
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from kernelcast.cli.doctor.result import CheckLevel, CheckResult, fail, ok, warn
from kernelcast.runtime.web.requests import open_url

TPU_PORT: Final = 8431
"""libtpu's own, where TPU_RUNTIME_METRICS_PORTS does not say otherwise."""

MEBIBYTE: Final = 2**20
_HERE: Final = "127.0.0.1"
_TIMEOUT_SECONDS: Final = 2.0
_WHOLE_SECONDS: Final = 10.0
_READ_BYTES: Final = 256 * 1024
"""Beginning of a page in which a dcgm-exporter's metrics are looked for."""
_ASKS_WHO_WE_ARE: Final = (401, 403)
_DCGM_MARK: Final = b"DCGM_FI_"

Fetch = Callable[[str], bytes]
Connect = Callable[[str, int], bool]
Present = Callable[[str], bool]
_INSTALL_GRPC: Final = "pip install 'kernelcast[exporter,grpc]'"


def _is_installed(module: str) -> bool:
    return find_spec(module) is not None


def check_kubelet(path: Path, *, present: Present = _is_installed) -> Iterator[CheckResult]:
    """Whether the kubelet can be asked which pod has which GPU.

    Args:
        path: The kubelet's socket.
        present: Says whether a module is installed.
    """
    check = "kubelet socket"
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        yield ok(check, f"{path} is not there: not a Kubernetes node, or not mounted here")
        return
    except OSError as error:
        yield warn(check, f"{path}: {error.strerror}", f"let user {os.getuid()} enter {path.parent}, or run as root")
        return
    if not stat.S_ISSOCK(mode):
        yield fail(check, f"{path} is not a socket", "mount the host's /var/lib/kubelet/pod-resources directory")
    elif not os.access(path, os.R_OK | os.W_OK):
        remedy = "pods stay unnamed; run the exporter as root, or give its user an ACL on the socket"
        yield warn(check, f"{path} ({stat.filemode(mode)}) cannot be used by user {os.getuid()}", remedy)
    elif not present("grpc"):
        remedy = f"pods stay unnamed; {_INSTALL_GRPC}, or set exporter.kubernetes to off"
        yield warn(check, f"{path} is there, grpcio is not installed", remedy)
    else:
        yield ok(check, f"{path} ({stat.filemode(mode)})")


def check_jobs(directory: Path | None) -> Iterator[CheckResult]:
    """Whether the scheduler's job files can be read."""
    if directory is None:
        return
    check = "job directory"
    try:
        names = sorted(entry.name for entry in directory.iterdir())
    except OSError as error:
        yield warn(check, f"{directory}: {error.strerror}", "have the scheduler's prolog make it, readable by all")
        return
    unreadable = [name for name in names if not os.access(directory / name, os.R_OK)]
    if unreadable:
        yield warn(check, f"user {os.getuid()} cannot read {', '.join(unreadable)}", "have the prolog chmod them 644")
    else:
        yield ok(check, f"{directory}, {len(names)} files")


def check_tpu(
    ports: Sequence[int],
    *,
    devices: Path = Path("/dev"),
    connect: Connect | None = None,
    present: Present = _is_installed,
) -> Iterator[CheckResult]:
    """Whether this node has TPUs, and whether their runtime answers: it does while a program has them.

    Args:
        ports: Ports of the runtime on this node; none takes the runtime's own default.
        devices: Folder of a TPU's device files, `accel0` and so on.
        connect: Tries an address.
        present: Says whether a module is installed.
    """
    chips = [*devices.glob("accel[0-9]*")]
    answering = [port for port in ports or (TPU_PORT,) if (connect or _answers)(_HERE, port)]
    listed = ", ".join(str(port) for port in answering)
    if (answering or chips) and not present("grpc"):
        remedy = f"{_INSTALL_GRPC}, or set exporter.tpu to off"
        yield warn("tpu", "this node has TPUs, grpcio is not installed", remedy)
    elif answering:
        yield ok("tpu", f"a runtime answers at port {listed}")
    elif chips:
        state = f"{len(chips)} TPU device files, and no runtime answers"
        yield warn("tpu", state, "start a program on the TPU; if one runs, name its port in exporter.tpu_ports")
    else:
        yield ok("tpu", "none here")


def check_dcgm_exporter(url: str, *, fetch: Fetch | None = None) -> Iterator[CheckResult]:
    """Whether a dcgm-exporter runs beside us, so that GPUs could be counted twice."""
    try:
        there = _DCGM_MARK in (fetch or _fetch)(url)
    except urllib.error.HTTPError as refusal:
        there = refusal.code in _ASKS_WHO_WE_ARE  # as the daemon takes it
    except (OSError, ValueError, HTTPException):
        there = False
    if there:
        yield warn(
            "dcgm-exporter",
            f"one answers at {url}: device metrics are left to it",
            "stop it, and ours take over within a minute; or exporter.device_metrics: on, and drop one of the two "
            "when you scrape",
        )
    else:
        yield ok("dcgm-exporter", "none beside us")


def check_directory(
    check: str, directory: Path | None, *, needed_bytes: int, without: str, setting: str = "", remedy: str = ""
) -> Iterator[CheckResult]:
    """Check that a directory of the exporter can be written, and that its disk has room.

    Args:
        check: Name of the check.
        directory: The directory, which need not exist; None if it is switched off.
        needed_bytes: Largest size of its content.
        without: Consequence of switching it off.
        setting: The setting that names it, where the exporter that is to start would end without it.
        remedy: What to do then, in the exporter's words.
    """
    if directory is None:
        yield warn(check, "switched off", without)
        return
    # `Path.exists` raises where a parent may not be entered.
    nearest = next((path for path in (directory, *directory.parents) if os.access(path, os.F_OK)), Path("/"))
    if not os.access(nearest, os.W_OK | os.X_OK):
        if setting:
            code = errno.EACCES if nearest.is_dir() else errno.EEXIST if nearest == directory else errno.ENOTDIR
            problem = f"{setting} {directory} cannot be used: {os.strerror(code)}"
            yield CheckResult(check, CheckLevel.FAIL, problem, remedy, wrong_settings=True)
        else:
            other = f"make {directory} for the exporter's user (the systemd unit does), or run this check as that user"
            yield warn(check, f"{directory}: user {os.getuid()} cannot write to {nearest}", other)
        return
    free = shutil.disk_usage(nearest).free
    if free < needed_bytes:
        needed = f"{needed_bytes / MEBIBYTE:,.0f} MiB may be needed"
        yield warn(check, f"{directory}: {free / MEBIBYTE:,.0f} MiB free; {needed}", "free some, or lower the limit")
    else:
        yield ok(check, f"{directory}, {free / MEBIBYTE:,.0f} MiB free")


def _fetch(url: str) -> bytes:
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"{url} is not a web address")
    request = urllib.request.Request(url)  # noqa: S310  checked above
    # A proxy must not see calls within the node.
    with open_url(request, _TIMEOUT_SECONDS, whole_seconds=_WHOLE_SECONDS, with_proxy=False) as response:
        return response.read(_READ_BYTES)


def _answers(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=_TIMEOUT_SECONDS).close()
    except OSError:
        return False
    return True
