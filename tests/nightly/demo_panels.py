"""Asks every panel of every page of a running demo: `python -m tests.nightly.demo_panels`.

The demo runs as a user starts it, with Prometheus, Alertmanager and its one fault, so that services and predictor
write their own metrics. A panel without an answer over the demo's time must be declared, with its reason.
"""

import json
import re
import subprocess
import sys
import tempfile
import time
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.service.grafana.test_simulated_hour import panels, substituted
from tests.service.servers import get

from kernelcast.grafana.model.unanswered import MAX_UNANSWERED, UNANSWERED_IN_DEMO

READY_SECONDS: Final = 600
WATCHED_SECONDS: Final = 170
"""The fault is predicted and announced by then, and forecasts of a minute have been scored."""
DEMO_VARIABLES: Final = {"1h": "1m", "[4m]": "[20s]", "offset 4m": "offset 20s"}


def main() -> int:
    """Run the demo and ask; returns the exit code."""
    with running() as prometheus:
        began = int(time.time())
        time.sleep(WATCHED_SECONDS)
        titles = {panel["title"]: panel for panel in panels()}
        empty = {title for title, panel in titles.items() if not any(answers(prometheus, panel, began))}
    wrong = sorted(empty ^ set(UNANSWERED_IN_DEMO))
    sys.stdout.write(f"{len(titles)} panels; empty: {sorted(empty)}; not as declared: {wrong}\n")
    return 1 if wrong or len(empty) > MAX_UNANSWERED else 0


@contextmanager
def running() -> Iterator[str]:
    """A demo whose services are ready; yields its Prometheus."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "demo.log"
        command = (sys.executable, "-m", "kernelcast.cli", "demo", "--source", "simulate", "--directory", folder)
        with log.open("wb") as output:
            demo = subprocess.Popen(command, stdout=output, stderr=output)
        try:
            deadline = time.monotonic() + READY_SECONDS
            while "launches" not in log.read_text():
                if demo.poll() is not None or time.monotonic() > deadline:
                    raise SystemExit(f"the demo did not start: {log.read_text()[-2000:]}")
                time.sleep(1)
            found = re.search(r"prometheus\s+(http://\S+)", log.read_text())
            if found is None:
                raise SystemExit("the demo found no Prometheus on PATH; install it")
            yield found[1]
        finally:
            demo.terminate()
            demo.wait(60)


def answers(prometheus: str, panel: dict[str, object], began: int) -> Iterator[bool]:
    """Whether each query of a panel has a number: now, or for a graph at any time since the demo began."""
    targets = panel["targets"]
    assert isinstance(targets, list)
    for target in targets:
        expr = substituted(target["expr"])
        for old, new in DEMO_VARIABLES.items():
            expr = expr.replace(old, new)
        now = int(time.time())
        whole = {"start": began, "end": now, "step": 5}
        kind, times = ("query", {"time": now}) if target["instant"] else ("query_range", whole)
        query = urllib.parse.urlencode({"query": expr, **times})
        result = json.loads(get(f"{prometheus}/api/v1/{kind}?{query}"))["data"]["result"]
        points = [point for one in result for point in one.get("values", [one.get("value")])]
        yield any(value != "NaN" for _, value in points)


if __name__ == "__main__":
    sys.exit(main())
