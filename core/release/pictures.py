"""Makes the pictures of the documents from a running demo: `python -m release.pictures [--page NAME …]`.

It starts the demo with Prometheus, waits until the fault of its simulation is predicted, and lets Chromium draw the
pages that the bridge serves. A picture has a palette, so that all of them stay small.
"""

import argparse
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import numpy as np

from kernelcast.cli.demo.http import fetch

REPOSITORY: Final = Path(__file__).resolve().parents[2]
OUTPUT: Final = REPOSITORY / "docs" / "pictures"
PAGES: Final = {
    "fleet": "kernelcast-overview",
    "node": "kernelcast-node",
    "gpu": "kernelcast-gpus",
    "kernels": "kernelcast-kernels",
    "synchronisation": "kernelcast-synchronisation",
    "forecasts": "kernelcast-forecasts",
    "hints": "kernelcast-hints",
    "pipeline": "kernelcast-pipeline",
}
"""Names of the pictures, and the pages' own."""
PREDICTED: Final = "\nkernelcast_degradation_time_to_threshold_seconds{"
START_SECONDS: Final = 900.0
PREDICTION_SECONDS: Final = 300.0
ANNOUNCED_SECONDS: Final = 45.0
"""Time from the prediction until its alert fires, and graphs have something to show."""
DRAWING_MILLISECONDS: Final = 20_000
BROWSERS: Final = ("chromium", "chromium-browser", "google-chrome")
WIDTH, HEIGHT = 1366, 1100
COLOURS: Final = 256
PIXEL_BYTES: Final = 3


def address(output: str) -> str | None:
    """Address of the bridge in the demo's output; None before the demo has printed it."""
    found = re.search(r"Dashboards, as soon as the services run: (http://[^/]+)/", output)
    return found[1] if found else None


def drawing(browser: str, url: str, picture: Path, profile: Path) -> list[str]:
    """Command that draws a page into a file."""
    return [
        *(browser, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"),
        *(f"--user-data-dir={profile}", f"--window-size={WIDTH},{HEIGHT}", "--hide-scrollbars"),
        *(f"--virtual-time-budget={DRAWING_MILLISECONDS}", f"--screenshot={picture}", url),
    ]


def main(arguments: Sequence[str]) -> int:
    """Make the pictures; returns the exit code."""
    parser = argparse.ArgumentParser("python -m release.pictures", description=__doc__.partition("\n")[0])
    parser.add_argument("--page", nargs="+", choices=PAGES, default=[*PAGES], help="pages to draw; default: all")
    parser.add_argument("--output", type=Path, default=OUTPUT, help="folder of the pictures")
    options = parser.parse_args(arguments)
    browser = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if browser is None or shutil.which("prometheus") is None:
        sys.stderr.write(
            "chromium or prometheus is not on PATH; both are needed: apt-get install chromium prometheus\n"
        )
        return 1
    options.output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="kernelcast-pictures-") as folder, demo(Path(folder)) as bridge:
        for name in options.page:
            url = f"{bridge}/pages/{PAGES[name]}?from=now-3m"
            picture = options.output / f"{name}.png"
            subprocess.run(drawing(browser, url, picture, Path(folder) / name), check=True, capture_output=True)
            picture.write_bytes(with_palette(picture.read_bytes()))
            sys.stdout.write(f"{picture}\n")
    return 0


def with_palette(png: bytes) -> bytes:
    """A PNG of 8-bit RGB with a palette instead: its most frequent colours, the others as the nearest of them.

    Source: W3C, Portable Network Graphics, sections 9 (filtering) and 11.
    """
    pixels = _pixels(png)
    height, width, _ = pixels.shape
    every, place, count = np.unique(pixels.reshape(-1, PIXEL_BYTES), axis=0, return_inverse=True, return_counts=True)
    palette = every[np.argsort(-count)[:COLOURS]]
    distances = ((every[:, None, :].astype(np.int32) - palette[None, :, :]) ** 2).sum(axis=2)
    rows = distances.argmin(axis=1).astype(np.uint8)[place.reshape(height, width)]
    unfiltered = np.hstack([np.zeros((height, 1), np.uint8), rows]).tobytes()
    head = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    chunks = ((b"IHDR", head), (b"PLTE", palette.tobytes()), (b"IDAT", zlib.compress(unfiltered, 9)), (b"IEND", b""))
    return png[:8] + b"".join(
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body)) for name, body in chunks
    )


def _pixels(png: bytes) -> "np.ndarray[tuple[int, int, int], np.dtype[np.uint8]]":
    """The pixels of a PNG of 8-bit RGB, shape (height, width, 3)."""
    width, height, depth, kind = struct.unpack(">IIBB", png[16:26])
    if (depth, kind) != (8, 2):
        raise ValueError(f"PNG of depth {depth} and colour type {kind}; only 8 and 2 (RGB) can be read")
    data, at = b"", 8
    while at < len(png):
        (length,) = struct.unpack(">I", png[at : at + 4])
        data += png[at + 8 : at + 8 + length] if png[at + 4 : at + 8] == b"IDAT" else b""
        at += length + 12
    size = width * PIXEL_BYTES
    lines = np.frombuffer(zlib.decompress(data), np.uint8).reshape(height, size + 1)
    above, made = bytearray(size), []
    for line in lines:
        above = _unfiltered(int(line[0]), bytearray(line[1:].tobytes()), above)
        made.append(np.frombuffer(bytes(above), np.uint8))
    return np.stack(made).reshape(height, width, PIXEL_BYTES)


def _unfiltered(kind: int, line: bytearray, above: bytearray) -> bytearray:
    """One line of bytes without its filter: 0 none, 1 left, 2 above, 3 their mean, 4 Paeth's predictor."""
    for place in range(len(line)) if kind else ():
        left = line[place - PIXEL_BYTES] if place >= PIXEL_BYTES else 0
        corner = above[place - PIXEL_BYTES] if place >= PIXEL_BYTES else 0
        up = above[place]
        nearest = min((left, up, corner), key=lambda one: abs(left + up - corner - one))
        line[place] = line[place] + (0, left, up, (left + up) // 2, nearest)[kind] & 0xFF
    return line


@contextmanager
def demo(folder: Path) -> Iterator[str]:
    """A demo whose fault is predicted; yields the address of its bridge."""
    log = folder / "output.log"
    command = (sys.executable, "-m", "kernelcast.cli", "demo", "--source", "simulate", "--directory", str(folder))
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        bridge = _wait(process, log, START_SECONDS, lambda: address(log.read_text()))
        _wait(process, log, START_SECONDS + PREDICTION_SECONDS, lambda: _predicted(bridge))
        time.sleep(ANNOUNCED_SECONDS)
        yield bridge
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(60)


def _predicted(bridge: str) -> str | None:
    page = fetch(f"{bridge}/metrics")
    return "predicted" if page is not None and PREDICTED in page else None


def _wait(process: "subprocess.Popen[bytes]", log: Path, seconds: float, done: Callable[[], str | None]) -> str:
    deadline = time.monotonic() + seconds
    while (found := done()) is None:
        if process.poll() is not None or time.monotonic() > deadline:
            raise SystemExit(
                f"the demo did not come so far within {seconds:.0f} s; it printed: {log.read_text()[-2000:]}"
            )
        time.sleep(1)
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
