"""Settings of the bridge: the section `bridge` of the settings file."""

from typing import Annotated, Literal

from pydantic import Field

from kernelcast.bridge.browser.settings import PagesSettings
from kernelcast.bridge.inputs import TopicFormat
from kernelcast.bridge.translation.settings import TranslationSettings
from kernelcast.runtime.settings.service import Remedy, ServiceSettings, WebSettings
from kernelcast.wire.topics import METRIC_TOPICS


class BridgeSettings(ServiceSettings):
    """Settings of `kernelcast bridge`.

    Attributes:
        topics: Topics to read; names that begin with `^` are regular expressions.
        formats: Format of the messages of a topic, by its name, or by a pattern that begins with `^`: `otlp_proto`,
            `otlp_json`, `remote_write`, `prometheus` (text, OpenMetrics), `influx`, a mapping of JSON, or the name of
            an entry point (see `inputs.registry`). Topics that are not named are `otlp_proto`. The headers `encoding`
            (one of these names) and `content-type` have precedence, and `content-encoding` is decompressed.
        mode: How replicas divide the work. `group`: by partition, as a consumer group; messages need keys, so that one
            series stays in one partition, unless their topic has one partition only. `replica`: each reads and keeps
            everything, identically, also messages without keys, such as a Collector's.
        group_id: The consumer group; all replicas that share the work share it. In mode `replica` none joins it:
            offsets are only committed, for lag monitors, to a group of this name with `-replica`.
        group_protocol: `consumer` lets the broker assign partitions (KIP-848, Kafka 4).
        group_instance_id: Name of this member across restarts (static membership): a restart within the session's
            time-out moves no partition. Must differ between replicas.
        ttl_seconds: How long a series stays after its last point; also how far back a new assignment reads.
        missed_intervals: A series whose own interval is known ends after this many intervals without a point. At 5, a
            series with one point a minute (a forecast) stays for 5 minutes, as long as Prometheus looks back.
        ttl_floor_seconds: Shortest time that a series stays after its last point; a producer may take as long to
            restart.
        max_lag_seconds: How far reading may fall behind before the oldest messages are skipped and counted; 0 skips
            none. By default twice `ttl_seconds`.
        max_series: Lines of `/metrics` in total; further new series are refused and counted.
        max_series_per_metric: Lines of one metric.
        max_series_per_producer: Lines of one job and instance.
        max_producers: Producers with series about them (`up`, age, `target_info`); series of further producers are
            exposed as well.
        future_tolerance_seconds: How far ahead of Kafka's clock a point may be; a later one is shown as of its append.
        takeover_seconds: Another writer of a series (another resource with its job and instance) takes over once the
            old one has missed one of its intervals; at the latest after this time without a point.
        translation: Choices that the specification leaves for the translation of OTLP to Prometheus.
        created_lines: Whether OpenMetrics has the start times of counters and histograms (`_created`). Off, because
            Prometheus reads each such line as another series unless it runs with
            `--enable-feature=created-timestamp-zero-ingestion`; protobuf has start times at no such cost.
        advertised_address: `HOST:PORT` of the targets in `/sd`; empty for the Host header of Prometheus' request.
        scraping: Whether topics are read into `/metrics`; otherwise the bridge only accepts alerts and serves pages.
        webhook: Whether `POST /api/v1/alerts` accepts Alertmanager's notifications.
        pages: The dashboards that the bridge serves at `/pages`.
    """

    web: WebSettings = WebSettings(listen_address=":19401")
    topics: Annotated[tuple[str, ...], Field(min_length=1), Remedy("name the topics to read")] = tuple(
        topic.name for topic in METRIC_TOPICS
    )
    formats: Annotated[dict[str, TopicFormat], Remedy("name a format for each topic, or a mapping of its JSON")] = (
        Field(default_factory=dict)
    )
    mode: Literal["group", "replica"] = "group"
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
    translation: TranslationSettings = TranslationSettings()
    created_lines: bool = False
    advertised_address: str = ""
    scraping: bool = True
    webhook: bool = True
    pages: PagesSettings = PagesSettings()
