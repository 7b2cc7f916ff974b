"""Memory of an exporter without kernelcast's own code: the same libraries in a new Python, one after the other.

    python benchmarks/exporter_floor.py

One process takes confluent-kafka with the exporter's clients (a producer and two readers) and a socket, then the other
libraries; another one takes pynvml, as the process that calls NVML does. Each line is the resident memory so far.
"""

import subprocess
import sys

from kernelcast.runtime.kafka.embedded import EmbeddedBroker

STEP = """
import socket, sys
def resident(name):
    kib = next(int(line.split()[1]) for line in open("/proc/self/smaps_rollup") if line.startswith("Rss:"))
    print(f"{name:70} {kib / 1024:6.1f} MiB", flush=True)
"""
DAEMON = """
resident("daemon: Python")
import confluent_kafka
resident("  and confluent_kafka imported")
broker = {"bootstrap.servers": sys.argv[1]}
producer = confluent_kafka.Producer(broker)
for _ in range(100):
    producer.produce("floor", bytes(20_000))
    producer.poll(0)
assert producer.flush(60) == 0
readers = [confluent_kafka.Consumer({**broker, "group.id": f"floor{number}"}) for number in range(2)]
for reader in readers:
    reader.subscribe(["floor"])
    reader.poll(2)
listener = socket.create_server(("127.0.0.1", 0))
resident("  and a producer, two consumers and a socket")
import prometheus_client
resident("  and prometheus_client")
import starlette.applications, uvicorn
resident("  and starlette, uvicorn")
import pydantic, pydantic.main, yaml
resident("  and pydantic, yaml")
sys.modules["rich"] = None
import orjson, structlog, typer
resident("  and typer, structlog, orjson")
"""
NVML = """
resident("NVML's process: Python")
import pynvml
resident("  and pynvml, its library not loaded")
"""


def main() -> None:
    """Print both processes."""
    with EmbeddedBroker() as broker:
        for program in (DAEMON, NVML):
            subprocess.run([sys.executable, "-c", STEP + program, broker.bootstrap_servers], check=True)


if __name__ == "__main__":
    main()
