"""Settings of the bridge: the section `bridge` of the settings file."""

from typing import Annotated, Literal

from pydantic import Field, field_validator

from kernelcast.bridge.delta.settings import DeltaSettings
from kernelcast.bridge.inputs import TopicFormat
from kernelcast.bridge.push.settings import PushSettings
from kernelcast.bridge.translation.settings import TranslationSettings
from kernelcast.runtime.settings.service import Remedy, ServiceSettings, WebSettings
from kernelcast.wire.topics import METRIC_TOPICS


class BridgeSettings(ServiceSettings):
    """Settings of `kernelcast bridge`.

    Attributes:
        topics: What to read; names that begin with `^` are regular expressions.
        formats: What the messages of a topic are, by its name, or by a pattern that begins with `^`: `otlp_proto`,
            `otlp_json`, `remote_write`, `prometheus` (text, OpenMetrics), `influx`, or a mapping of JSON; `auto` looks
            at each message. Topics of our own are `otlp_proto`, others `auto`. The headers `encoding` (one of these
            names) and `content-type` win, and `content-encoding` is undone.
        mode: How replicas divide the work. `group`: by partition, as a consumer group; messages need keys, so that one
            series stays in one partition. `sharded`: each reads everything and keeps its share of the series, for
            topics whose messages have no key, such as a Collector's. `replica`: each keeps everything, identically.
        replica_index: Which replica this is in mode `sharded`, from 0; by default the number that ends the host's
            name, as a StatefulSet gives it.
        replica_count: How many replicas there are in mode `sharded`.
        group_id: The consumer group; all replicas that share the work share it. In the other modes nobody joins it:
            offsets are committed for those who watch the lag, to a group of this name for each replica.
        group_protocol: `consumer` lets the broker assign partitions (KIP-848, Kafka 4).
        group_instance_id: A name of this member that it keeps over restarts (static membership): one that is back
            within the session's timeout moves no partition. Different in each replica.
        ttl_seconds: How long a series stays after its last point; also how far back a new assignment reads.
        missed_intervals: A series whose own interval is known ends earlier, after so many of them without a point. At
            5, a series of every minute (a forecast) stays for 5 minutes, as long as Prometheus itself would look back.
        ttl_floor_seconds: But none ends earlier than this after its last point: what a producer may take to restart.
        max_lag_seconds: How far reading may fall behind before what is oldest is skipped, and counted; 0 skips nothing.
            By default twice `ttl_seconds`. Delta data is never skipped.
        max_series: Lines of `/metrics`, in all; new series beyond are refused and counted.
        max_series_per_metric: Lines of one metric.
        max_series_per_producer: Lines of one job and instance.
        max_producers: Producers that are told of, three series for each; what others produce is exposed all the same.
        future_tolerance_seconds: How far ahead of Kafka's clock a point may be before its time is clamped.
        takeover_seconds: Another writer of a series (another resource under its job and instance) takes over once the
            old one has missed one of its intervals; at the latest, once the series has had no point for this long.
        deltas: The running totals of delta series.
        translation: How OTLP becomes Prometheus, where the specification leaves a choice.
        created_lines: Whether OpenMetrics tells since when counters and histograms count. Off, because Prometheus takes
            each such line for one more series unless it runs with `--enable-feature=created-timestamp-zero-ingestion`;
            protobuf says it at no such cost.
        advertised_address: `HOST:PORT` of the targets in `/sd`; empty for the Host header that Prometheus asks with.
        scraping: Whether series are held for `/metrics`; without, the bridge only pushes (and takes alerts).
        push: Destinations that get every point, each with its own consumer group: see `push.settings.PushSettings`.
        webhook: Whether `POST /api/v1/alerts` takes Alertmanager's notifications.
    """

    web: WebSettings = WebSettings(listen_address=":19401")
    topics: Annotated[tuple[str, ...], Field(min_length=1), Remedy("name the topics to read")] = tuple(
        topic.name for topic in METRIC_TOPICS
    )
    formats: Annotated[dict[str, TopicFormat], Remedy("name a format for each topic, or a mapping of its JSON")] = (
        Field(default_factory=dict)
    )
    mode: Literal["group", "sharded", "replica"] = "group"
    replica_index: Annotated[int | None, Field(ge=0)] = None
    replica_count: Annotated[int, Field(ge=1, le=1000)] = 1
    group_id: Annotated[str, Field(min_length=1)] = "kernelcast-bridge"
    group_protocol: Literal["classic", "consumer"] = "classic"
    group_instance_id: Annotated[str | None, Field(min_length=1, max_length=249)] = None
    ttl_seconds: Annotated[float, Field(ge=1, le=86_400), Remedy("set it above two export intervals")] = 300.0
    missed_intervals: Annotated[int, Field(ge=2, le=1000), Remedy("a series that is late once must not vanish")] = 5
    ttl_floor_seconds: Annotated[float, Field(ge=0, le=86_400)] = 60.0
    max_lag_seconds: Annotated[float | None, Field(ge=0, allow_inf_nan=False)] = None
    max_series: Annotated[int, Field(ge=1), Remedy("set it above the number of series you expect")] = 2_000_000
    max_series_per_metric: Annotated[int, Field(ge=1)] = 1_000_000
    max_series_per_producer: Annotated[int, Field(ge=1)] = 1_000_000
    max_producers: Annotated[int, Field(ge=1)] = 100_000
    future_tolerance_seconds: Annotated[float, Field(ge=0, le=3600)] = 10.0
    takeover_seconds: Annotated[float, Field(ge=0, le=86_400)] = 60.0
    deltas: DeltaSettings = DeltaSettings()
    translation: TranslationSettings = TranslationSettings()
    created_lines: bool = False
    advertised_address: str = ""
    scraping: bool = True
    push: tuple[PushSettings, ...] = ()
    webhook: bool = True

    @field_validator("push")
    @classmethod
    def _must_have_names_of_their_own(cls, value: tuple[PushSettings, ...]) -> tuple[PushSettings, ...]:
        for each in ("name", "group"):
            known = [getattr(destination, each) for destination in value]
            twice = sorted({text for text in known if known.count(text) > 1})
            if twice:
                raise ValueError(f"two destinations have the same {each} ({', '.join(twice)}); give each its own")
        return value
