"""A fleet under dcgm-exporter's names and labels: its history as OpenMetrics, and its present as a page to scrape.

Values are functions of time, so that history and page continue each other. GPU 0 of node 0 has passed its limit for
half an hour; GPU 1 heats up by two degrees an hour towards it; the others are healthy. Jobs change every two hours.
"""

import http.server
import math
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, Self

MODEL: Final = "NVIDIA H100 80GB HBM3"
LIMIT: Final = 89.0
JOB_SECONDS: Final = 7200
HOT, HEATING = 0, 1
"""GPUs of node 0."""

Value = Callable[[int, float], float]
"""From the number of a GPU and the time."""


class DcgmFleet:
    """The values of all GPUs.

    Args:
        gpus: Number of GPUs, eight on a node.
        now_seconds: The time at which the history ends, Unix.
        model: The label `modelName`.
    """

    def __init__(self, gpus: int, now_seconds: float, *, model: str = MODEL) -> None:
        self.gpus, self.now_seconds, self.model = gpus, now_seconds, model
        self.page_size = 0

    def temperature(self, gpu: int, at: float) -> float:
        wave = math.sin(at / 900.0 + gpu) + 0.5 * math.sin(at / 137.0 + 3 * gpu)
        value = 62.0 + 2 * wave
        if gpu == HOT and at > self.now_seconds - 1800:
            value = 93.0 + wave / 2
        if gpu == HEATING:
            # Reaches the limit an hour and a half after the history ends.
            value = 65.0 + max(0.0, (at - (self.now_seconds - 6 * 3600)) / 3600.0 * 3.2) + 0.3 * wave
        return float(round(value))

    def metrics(self) -> dict[str, tuple[str, Value]]:
        """Kind and values by name."""
        return {
            "DCGM_FI_DEV_GPU_TEMP": ("gauge", self.temperature),
            "DCGM_FI_DEV_POWER_USAGE": ("gauge", lambda gpu, at: 400.0 + 10 * math.sin(at / 300 + gpu)),
            "DCGM_FI_DEV_SM_CLOCK": ("gauge", lambda _gpu, _at: 1980.0),
            "DCGM_FI_DEV_GPU_UTIL": ("gauge", lambda gpu, at: 80.0 + 10 * math.sin(at / 500 + gpu)),
            "DCGM_FI_DEV_FB_USED": ("gauge", lambda _gpu, _at: 40_000.0),
            "DCGM_FI_DEV_FB_FREE": ("gauge", lambda _gpu, _at: 41_000.0),
            "DCGM_FI_DEV_XID_ERRORS": ("gauge", lambda _gpu, _at: 0.0),
            "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": ("counter", lambda _gpu, at: float(int(at / 86_400))),
        }

    def labels(self, gpu: int, at: float) -> str:
        """Labels as dcgm-exporter writes them; a job's pod is among them."""
        node, place = divmod(gpu, 8)
        job = int(at / JOB_SECONDS) + gpu
        known = {
            "gpu": str(place),
            "UUID": f"GPU-{gpu:08x}",
            "pci_bus_id": f"00000000:{place:02X}:00.0",
            "device": f"nvidia{place}",
            "modelName": self.model,
            "Hostname": f"node-{node}",
            "DCGM_FI_DRIVER_VERSION": "580.95.05",
            "container": "main",
            "namespace": "training",
            "pod": f"job-{job}",
        }
        return ",".join(f'{name}="{value}"' for name, value in known.items())

    def page(self, at: float) -> str:
        """The page of an exporter."""
        lines = []
        for name, (kind, value) in self.metrics().items():
            lines += [f"# HELP {name} x", f"# TYPE {name} {kind}"]
            lines += [f"{name}{{{self.labels(gpu, at)}}} {value(gpu, at)}" for gpu in range(self.gpus)]
        return "\n".join([*lines, ""])

    def write_history(self, promtool: str, directory: Path, *, seconds: float, step_seconds: float) -> None:
        """Write the past into a data directory of Prometheus, without one that runs on it."""
        history = directory / "history.om"
        with history.open("w") as file:
            for line in self._history(seconds, step_seconds):
                file.write(line)
        create = [promtool, "tsdb", "create-blocks-from", "openmetrics", str(history), str(directory / "tsdb")]
        subprocess.run(create, check=True, capture_output=True)
        history.unlink()

    def _history(self, seconds: float, step_seconds: float) -> Iterator[str]:
        count = int(seconds / step_seconds)
        begin = self.now_seconds - count * step_seconds
        for name, (kind, value) in self.metrics().items():
            shown = f"{name}_total" if kind == "counter" else name
            yield f"# TYPE {name} {'unknown' if kind == 'counter' else kind}\n"
            shown = name
            for gpu in range(self.gpus):
                for number in range(count):
                    at = begin + number * step_seconds
                    yield f"{shown}{{{self._scraped(gpu, at)}}} {value(gpu, at)} {at:.3f}\n"
        yield "# EOF\n"

    def _scraped(self, gpu: int, at: float) -> str:
        return f'{self.labels(gpu, at)},job="dcgm",instance="dcgm:9400"'


class DcgmPage:
    """Serves the present of a fleet, on loopback."""

    def __init__(self, fleet: DcgmFleet, port: int) -> None:
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = fleet.page(time.time()).encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None: ...

        self.address = f"127.0.0.1:{port}"
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
