"""Makes the pictures of the documents from a running demo: `python -m release.pictures [--page NAME …]`.

It starts the demo with Prometheus, waits until the fault of its simulation is predicted, and lets Chromium draw the
pages that the bridge serves. pngquant gives the pictures a palette, so that all of them stay small.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from kernelcast.cli.demo.http import fetch

REPOSITORY: Final = Path(__file__).resolve().parents[2]
OUTPUT: Final = REPOSITORY / "docs" / "pictures"
PAGES: Final = {
    "fleet": "kernelcast-overview",
    "program": "kernelcast-kernels",
    "gpu": "kernelcast-gpus",
    "pipeline": "kernelcast-pipeline",
}
"""Names of the pictures, and the pages' own; a demo has no inference engine for the page about serving."""
PREDICTED: Final = "\nkernelcast_degradation_time_to_threshold_seconds{"
"""Part of the bridge's page once the fault is predicted."""
START_SECONDS: Final = 900.0
"""Longest start of the demo: it may compile first."""
PREDICTION_SECONDS: Final = 300.0
ANNOUNCED_SECONDS: Final = 45.0
"""Time from the prediction until its alert fires, and graphs have something to show."""
DRAWING_SECONDS: Final = 20
"""Chromium's virtual time for the page's scripts and requests. It runs ahead of the demo's, so pages end before it."""
BROWSERS: Final = ("chromium", "chromium-browser", "google-chrome")
WIDTH, HEIGHT = 1366, 1100
QUANTISER: Final = "pngquant"


def address(output: str) -> str | None:
    """Address of the bridge in the demo's output; None before the demo has printed it."""
    found = re.search(r"In a browser, as soon as the services run: (http://[^/]+)/", output)
    return found[1] if found else None


def drawing(browser: str, url: str, picture: Path, profile: Path) -> list[str]:
    """Command that draws a page into a file."""
    return [
        *(browser, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"),
        *(f"--user-data-dir={profile}", f"--window-size={WIDTH},{HEIGHT}", "--hide-scrollbars"),
        *(f"--virtual-time-budget={1000 * DRAWING_SECONDS}", f"--screenshot={picture}", url),
    ]


def main(arguments: Sequence[str]) -> int:
    """Make the pictures; returns the exit code."""
    parser = argparse.ArgumentParser("python -m release.pictures", description=__doc__.partition("\n")[0])
    parser.add_argument("--page", nargs="+", choices=PAGES, default=[*PAGES], help="pages to draw; default: all")
    parser.add_argument("--output", type=Path, default=OUTPUT, help="folder of the pictures")
    options = parser.parse_args(arguments)
    browser = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if browser is None or not all(map(shutil.which, ("prometheus", QUANTISER))):
        sys.stderr.write(
            f"chromium, prometheus or {QUANTISER} is not on PATH; all are needed: apt-get install chromium prometheus "
            f"{QUANTISER}\n"
        )
        return 1
    options.output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="kernelcast-pictures-") as folder, demo(Path(folder)) as bridge:
        for name in options.page:
            url = f"{bridge}/pages/{PAGES[name]}?to=now-{DRAWING_SECONDS}s"
            picture = options.output / f"{name}.png"
            subprocess.run(drawing(browser, url, picture, Path(folder) / name), check=True, capture_output=True)
            subprocess.run(smaller(picture), check=True)
            sys.stdout.write(f"{picture}\n")
    return 0


def smaller(picture: Path) -> list[str]:
    """Command that gives a picture a palette."""
    return [QUANTISER, "--force", "--ext", ".png", "256", str(picture)]


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
