"""The exporter's control socket: `kernelcast exporter release` and `resume` reach a running exporter through it.

A Unix socket in the state directory, which belongs to the exporter's user. The kernel says who connects: only root and
that user are answered. One JSON object is one request, another is its answer.
"""

import json
import os
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from kernelcast.exporter.nvml.isolation.isolated import IsolatedSampler
from kernelcast.exporter.programs.socket import OWNER_MODE, peer_of
from kernelcast.exporter.totals.report import SourceBatch
from kernelcast.runtime.logging import get_logger
from kernelcast.wire.errors import DeviceError, SourceError

NAME: Final = "control.sock"
RELEASE: Final = "release"
RESUME: Final = "resume"
LONGEST_SECONDS: Final = 7 * 86_400.0
"""Longest release."""
_ROOT: Final = 0
_MAX_BYTES: Final = 65_536
_WAITING: Final = 8
"""Requests that can wait for an interval, and are answered in one."""
_READ_SECONDS: Final = 0.2
"""Longest wait for the request of a client that has connected."""

_REFUSED: Final[dict[str, Any]] = {
    "error": "the exporter releases GPUs only for root and for its own user; run this as one of them"
}

_log = get_logger(__name__)


class ControlSocket:
    """Answers requests between two readings of the GPUs; a source of the daemon without samples.

    Args:
        directory: The state directory, which the exporter has locked.
        sampler: Releases GPUs.

    Raises:
        OSError: The socket cannot be made.
    """

    def __init__(self, directory: Path, sampler: IsolatedSampler) -> None:
        self._path = directory / NAME
        self._sampler = sampler
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self._path.unlink(missing_ok=True)
            self._listener.bind(str(self._path))
            self._path.chmod(OWNER_MODE)
            self._listener.listen(_WAITING)
        except OSError:
            self._listener.close()
            raise
        self._listener.setblocking(False)

    def poll(self, now_ns: int) -> SourceBatch:  # noqa: ARG002  a source is polled with the time
        """Answer the requests that have come since the last interval."""
        for _ in range(_WAITING):
            try:
                connection, _address = self._listener.accept()
            except OSError:
                break
            with connection, suppress(OSError):  # a client that has left needs no answer
                connection.settimeout(_READ_SECONDS)
                request, uid = connection.recv(_MAX_BYTES), peer_of(connection).uid
                answer = self._answer(request) if uid in (_ROOT, os.geteuid()) else _REFUSED
                connection.send(json.dumps(answer).encode())
        return SourceBatch()

    def close(self) -> None:
        """Remove the socket; safe to call twice."""
        self._listener.close()
        self._path.unlink(missing_ok=True)

    def _answer(self, data: bytes) -> dict[str, Any]:
        try:
            request = json.loads(data)
            gpu = str(request["gpu"])
            if request["do"] == RELEASE:
                gpus = self._sampler.release(gpu, min(float(request["seconds"]), LONGEST_SECONDS))
            else:
                gpus = self._sampler.resume(gpu)
        except DeviceError as error:
            return {"error": str(error)}
        except (ValueError, TypeError, LookupError) as error:
            return {"error": f"the request is wrong: {error!r}"}
        _log.info("GPUs released" if request["do"] == RELEASE else "GPUs resumed", uuids=[one.uuid for one in gpus])
        return {"gpus": [{"index": one.index, "uuid": one.uuid, "device": one.device} for one in gpus]}


def ask(directory: Path, request: dict[str, Any], *, timeout_seconds: float) -> list[dict[str, str]]:
    """Send a request to the exporter with this state directory; returns the GPUs that it was done to.

    Raises:
        SourceError: No exporter runs there, it does not answer in time, or it cannot do it.
    """
    path = directory / NAME
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
        client.settimeout(timeout_seconds)
        try:
            client.connect(str(path))
            client.send(json.dumps(request).encode())
            data = client.recv(_MAX_BYTES)
        except PermissionError:
            raise SourceError(f"{path} belongs to another user; run this as root or as the exporter's user") from None
        except (FileNotFoundError, ConnectionRefusedError):
            raise SourceError(
                f"no exporter answers on {path}; start it, or name its settings file with --config"
            ) from None
        except TimeoutError:
            raise SourceError(
                f"the exporter did not answer within {timeout_seconds:g} s; look at its log and try again"
            ) from None
        except OSError as error:
            raise SourceError(
                f"the exporter cannot be reached over {path}: {error.strerror}; look at its log"
            ) from None
    answer: dict[str, Any] = json.loads(data or b'{"error": "the exporter has ended; look at its log"}')
    if "error" in answer:
        raise SourceError(answer["error"])
    gpus: list[dict[str, str]] = answer["gpus"]
    return gpus
