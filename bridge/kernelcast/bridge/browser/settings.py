"""Settings of the dashboards that the bridge serves: the section `pages` of the bridge's settings."""

from pathlib import Path
from typing import Annotated, Self
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from kernelcast.bridge.push.settings import BasicAuth, TlsSettings, check_credentials, check_http_url
from kernelcast.runtime.settings.service import Section


class PagesSettings(Section):
    """The dashboards that the bridge serves at `/pages`: their source and limits.

    Attributes:
        enabled: Whether they are served.
        prometheus_url: The Prometheus that answers the pages' queries, such as `http://prometheus:9090`. Empty:
            there are no dashboards, and `/pages` leads to the bridge's first page.
        basic_auth: User and password for that Prometheus.
        bearer_token_file: A file with a token for it, read again whenever it changes.
        tls: Certificates for it.
        timeout_seconds: How long one query may take.
        max_response_bytes: Largest answer of one query, as it is transferred.
        concurrent_queries: Queries that Prometheus works on at one time; others wait.
        scrape_interval_seconds: How often this Prometheus scrapes: the shortest step of a graph.
    """

    enabled: bool = True
    prometheus_url: str = ""
    basic_auth: BasicAuth | None = None
    bearer_token_file: Path | None = None
    tls: TlsSettings = TlsSettings()
    timeout_seconds: Annotated[float, Field(ge=0.1, le=120)] = 10.0
    max_response_bytes: Annotated[int, Field(ge=1024, le=256 * 1024 * 1024)] = 8 * 1024 * 1024
    concurrent_queries: Annotated[int, Field(ge=1, le=64)] = 4
    scrape_interval_seconds: Annotated[float, Field(ge=0.1, le=3600)] = 15.0

    @field_validator("prometheus_url")
    @classmethod
    def _must_be_http(cls, value: str) -> str:
        if not value:
            return value
        check_http_url(value)
        parts = urlsplit(value)
        if parts.query or parts.fragment:
            raise ValueError("it must end with a path; leave out ? and #")
        return value.rstrip("/")

    @model_validator(mode="after")
    def _must_have_one_kind_of_credentials(self) -> Self:
        check_credentials(self.basic_auth, self.bearer_token_file)
        return self
