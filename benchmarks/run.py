"""The figures of decoder, exposition and ingest beside their peers, in one run: `make bench`.

    python benchmarks/run.py [--output FILE] [NAME …]

Each benchmark is a program of its own and runs in a process of its own, so that one's memory is not another's. The one
that needs a broker gets a real Apache Kafka where there is one (Java and Maven), else the embedded one, and says which.
"""

import argparse
import contextlib
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))  # the real Kafka comes from the service tests

from tests.service.servers import KafkaServer  # noqa: E402  needs the path above

NAMES = ("decode", "exposition", "ingest")


@contextlib.contextmanager
def broker(directory: Path) -> Iterator[list[str]]:
    """Options that name a broker: a real Kafka, or the embedded one where none can be had."""
    try:
        server = KafkaServer(directory)
    except BaseException as missing:  # noqa: BLE001  pytest's skip is no Exception
        print(f"no Apache Kafka ({missing}): the embedded broker instead")
        yield ["--embedded"]
        return
    try:
        server.run()
        yield ["--kafka.bootstrap-servers", server.bootstrap_servers]
    finally:
        server.kill()


def run(name: str, directory: Path) -> dict[str, Any]:
    """One benchmark in a process of its own; its result."""
    target = directory / f"{name}.json"
    with contextlib.ExitStack() as stack:
        options = stack.enter_context(broker(directory)) if name == "ingest" else []
        subprocess.run([sys.executable, str(HERE / f"{name}.py"), "--json", str(target), *options], check=True)
    result: dict[str, Any] = json.loads(target.read_text())
    return result


def machine() -> dict[str, Any]:
    """Describes the machine."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    cpu = models[0] if models else platform.processor()
    return {"cpu": cpu, "cores": os.cpu_count(), "python": platform.python_version()}


def main() -> None:
    """Run those that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[*NAMES, []], help="which; all by default")
    parser.add_argument("--output", type=Path, help="write all results as JSON to this file")
    arguments = parser.parse_args()
    results: dict[str, Any] = {"machine": machine()}
    with tempfile.TemporaryDirectory(prefix="kernelcast-bench-") as directory:
        for name in arguments.names or NAMES:
            print(f"── {name}", flush=True)
            results[name] = run(name, Path(directory))
    if arguments.output:
        arguments.output.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
