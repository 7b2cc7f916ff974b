"""What the bridge can be told: the section `bridge` of the settings file."""

from typing import Annotated

from pydantic import Field

from kernelcast.runtime.settings import Remedy, ServiceSettings, WebSettings
from kernelcast.wire.topics import METRIC_TOPICS


class BridgeSettings(ServiceSettings):
    """Settings of `kernelcast bridge`.

    Attributes:
        topics: What to read; names that begin with `^` are regular expressions. Only keyed topics: one series must
            stay in one partition.
        group_id: The consumer group; all replicas that share the work share it.
        ttl_seconds: How long a series stays after its last point; also how far back a new assignment reads.
        max_series: Lines of `/metrics`, in all; new series beyond are refused and counted.
        max_series_per_metric: Lines of one metric.
        future_tolerance_seconds: How far ahead of Kafka's clock a point may be before its time is clamped.
        takeover_seconds: How long a writer must be silent before another may take its series over.
        webhook: Whether `POST /api/v1/alerts` takes Alertmanager's notifications.
    """

    web: WebSettings = WebSettings(listen_address=":19401")
    topics: Annotated[tuple[str, ...], Field(min_length=1), Remedy("name the topics to read")] = tuple(
        topic.name for topic in METRIC_TOPICS
    )
    group_id: Annotated[str, Field(min_length=1)] = "kernelcast-bridge"
    ttl_seconds: Annotated[float, Field(ge=1, le=86_400), Remedy("set it above two export intervals")] = 300.0
    max_series: Annotated[int, Field(ge=1), Remedy("set it above the number of series you expect")] = 2_000_000
    max_series_per_metric: Annotated[int, Field(ge=1)] = 1_000_000
    future_tolerance_seconds: Annotated[float, Field(ge=0, le=3600)] = 10.0
    takeover_seconds: Annotated[float, Field(ge=0, le=86_400)] = 60.0
    webhook: bool = True
