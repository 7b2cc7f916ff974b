"""The compared bridges: kernelcast's and others, each with its command and its best reasonable configuration.

All keep a series for the same time after its last point and read from the beginning; kernelcast's rule to end a series
after a number of its own intervals is switched off. While they are stopped, they stay in their consumer group; Telegraf
has no setting for that and joins again, which takes about a second. Each run has a group of its own: the member of the
run before, which was killed, would hold up the next one for its session. All other settings have their defaults.
"""

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Final

import yaml
from benchmarks.peers.builds import COLLECTOR, TELEGRAF
from benchmarks.peers.load import Encoding, Influx, Otlp

TTL_SECONDS: Final = 1800
SESSION_SECONDS: Final = 600
"""How long a stopped process stays a member of its group."""
SCRAPE_SECONDS: Final = 300
"""The Collector's default of 30 s and Telegraf's of 10 s are too short for a page of a million series."""
LIMIT_SERIES: Final = 10_000_000


@dataclass(frozen=True)
class Setup:
    """The environment of a contestant: files, broker, topic, port."""

    directory: Path
    bootstrap_servers: str
    topic: str
    port: int

    def write(self, name: str, text: str) -> str:
        """Write a configuration file; its path."""
        path = self.directory / name
        path.write_text(text)
        return str(path)


@dataclass(frozen=True)
class Contestant:
    """One bridge from Kafka to `/metrics`.

    Attributes:
        name: Its name in the tables.
        version: Its release.
        encoding: The format that it reads.
        command: Its command line; writes its configuration.
        health: The path that answers 2xx once it runs.
        quiet_seconds: Longer than any pause that it makes while there is work.
    """

    name: str
    version: str
    encoding: Callable[[], Encoding]
    command: Callable[[Setup], list[str]]
    health: str = "/metrics"
    quiet_seconds: float = 3.0


def _kernelcast(setup: Setup) -> list[str]:
    content = {
        "kafka": {
            "bootstrap_servers": setup.bootstrap_servers,
            "properties": {
                name: str(SESSION_SECONDS * 1000) for name in ("session.timeout.ms", "max.poll.interval.ms")
            },
        },
        "log": {"level": "warning"},
        "bridge": {
            "web": {"listen_address": f"127.0.0.1:{setup.port}"},
            "topics": [setup.topic],
            "group_id": setup.topic,
            "ttl_seconds": TTL_SECONDS,
            "missed_intervals": 1000,
            "max_series": LIMIT_SERIES,
            "max_series_per_metric": LIMIT_SERIES,
        },
    }
    path = setup.write("kernelcast.yaml", yaml.safe_dump(content))
    return [sys.executable, "-m", "kernelcast.cli", "bridge", "--config", path]


def _collector(setup: Setup) -> list[str]:
    content = {
        "receivers": {
            "kafka": {
                "brokers": [setup.bootstrap_servers],
                "group_id": setup.topic,
                "initial_offset": "earliest",
                "session_timeout": f"{SESSION_SECONDS}s",
                "metrics": {"topics": [setup.topic], "encoding": "otlp_proto"},
            }
        },
        "exporters": {
            "prometheus": {
                "endpoint": f"127.0.0.1:{setup.port}",
                "metric_expiration": f"{TTL_SECONDS}s",
                "without_scope_info": True,
                "write_timeout": f"{SCRAPE_SECONDS}s",
            }
        },
        "service": {
            "telemetry": {"metrics": {"level": "none"}, "logs": {"level": "warn"}},
            "pipelines": {"metrics": {"receivers": ["kafka"], "exporters": ["prometheus"]}},
        },
    }
    return [str(COLLECTOR.build()), "--config", f"file:{setup.write('collector.yaml', yaml.safe_dump(content))}"]


def _telegraf(setup: Setup) -> list[str]:
    text = f"""
[agent]
  interval = "1s"
  flush_interval = "1s"
  metric_batch_size = 10000
  metric_buffer_limit = 1000000
  omit_hostname = true
  quiet = true

[[inputs.kafka_consumer]]
  brokers = [{json.dumps(setup.bootstrap_servers)}]
  kafka_version = "2.8.0"
  topics = [{json.dumps(setup.topic)}]
  consumer_group = {json.dumps(setup.topic)}
  offset = "oldest"
  max_undelivered_messages = 10000
  max_processing_time = "10s"
  data_format = "influx"

[[outputs.prometheus_client]]
  listen = "127.0.0.1:{setup.port}"
  metric_version = 2
  expiration_interval = "{TTL_SECONDS}s"
  write_timeout = "{SCRAPE_SECONDS}s"
  collectors_exclude = ["gocollector", "process"]
"""
    return [str(TELEGRAF.build()), "--config", setup.write("telegraf.conf", text)]


CONTESTANTS: Final = {
    "kernelcast": Contestant("kernelcast", version("kernelcast"), Otlp, _kernelcast, health="/-/ready"),
    "collector": Contestant("OpenTelemetry Collector", COLLECTOR.release, Otlp, _collector),
    "telegraf": Contestant("Telegraf", TELEGRAF.release, Influx, _telegraf, quiet_seconds=5.0),
}
