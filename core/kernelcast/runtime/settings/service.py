"""Settings of all daemons: flags > `KERNELCAST_*` environment > one YAML file > defaults.

Each command calls `load` once. A service subclasses `ServiceSettings` with its own fields and gives `web` its default
port::

    class BridgeSettings(ServiceSettings):
        web: WebSettings = WebSettings(listen_address=":19401")
        ttl_seconds: Annotated[float, Field(ge=1), Remedy("raise it above two export intervals")] = 300.0
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from kernelcast.runtime.settings.layers import OptionName, gather
from kernelcast.runtime.settings.listen import MAX_PORT, parse_listen_address
from kernelcast.runtime.settings.masking import is_secret, mask
from kernelcast.runtime.settings.problems import Remedy, explain
from kernelcast.wire.errors import ConfigurationError

__all__ = ["KafkaSettings", "LogSettings", "OptionName", "Remedy", "Section", "ServiceSettings", "WebSettings", "load"]

_BROKER: Final = re.compile(r"(\w+://)?(\[[\da-fA-F:.]+\]|[^\s:/\[\]]+)(:(?P<port>[0-9]{1,5}))?")
"""As librdkafka reads one; it takes a port that is no number for 0, and retries."""


class Section(BaseModel):
    """A group of settings: unknown keys and numbers that are not finite are errors; values never change."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True, allow_inf_nan=False)


class KafkaSettings(Section):
    """Connection to Kafka.

    Attributes:
        bootstrap_servers: `HOST:PORT[,HOST:PORT…]`.
        properties: Further librdkafka properties, by librdkafka's names (TLS, SASL, tuning); they win over our own.
    """

    bootstrap_servers: str = Field(default="localhost:9092", min_length=1)
    properties: dict[str, str] = Field(default_factory=dict)

    @field_validator("bootstrap_servers")
    @classmethod
    def _must_name_brokers(cls, value: str) -> str:
        brokers = [_BROKER.fullmatch(broker.strip()) for broker in value.split(",") if broker.strip()]
        if not brokers or not all(broker and 1 <= int(broker["port"] or 1) <= MAX_PORT for broker in brokers):
            raise ValueError(f"each broker must be HOST:PORT, with a port from 1 to {MAX_PORT}")
        return value

    @field_validator("properties", mode="before")
    @classmethod
    def _write_as_librdkafka_does(cls, value: Any) -> Any:
        """YAML reads `true`, `5` and nested keys; librdkafka wants text under dotted names."""
        return dict(_properties("", value)) if isinstance(value, Mapping) else value

    def __repr_args__(self) -> list[tuple[str | None, Any]]:
        """Hide secrets wherever the settings are printed or logged."""
        return [("bootstrap_servers", self.bootstrap_servers), ("properties", mask(self.properties))]


class WebSettings(Section):
    """HTTP server of a daemon.

    Attributes:
        listen_address: `HOST:PORT`, `:PORT` for every interface, `[::1]:PORT`; port 0 takes a free one.
        config_file: Web configuration file in the exporter-toolkit's format: TLS, client certificates, users.
    """

    listen_address: str
    config_file: Annotated[Path | None, OptionName("--web.config.file")] = None

    @field_validator("listen_address")
    @classmethod
    def _must_be_an_address(cls, value: str) -> str:
        parse_listen_address(value)
        return value


class LogSettings(Section):
    """Level and format of the log, which goes to standard error."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["logfmt", "json"] = "logfmt"


class ServiceSettings(Section):
    """Settings of all daemons; a service adds its own fields and gives `web` a default."""

    kafka: KafkaSettings = KafkaSettings()
    log: LogSettings = LogSettings()
    web: WebSettings


S = TypeVar("S", bound=BaseModel)


def load(
    section: str,
    model: type[S],
    *,
    path: Path | None,
    flags: Mapping[str, object],
    environ: Mapping[str, str],
) -> S:
    """Read one service's settings from all their sources.

    Args:
        section: The service's section of the file, and of the environment: `exporter` reads `KERNELCAST_EXPORTER__…`.
        model: The model of the settings.
        path: The YAML file; None reads none.
        flags: Command-line values by dotted path below the section, as `{"kafka.bootstrap_servers": "host:9092"}`;
            None means that the flag was not given.
        environ: The process's environment.

    Raises:
        ConfigurationError: Every problem found, one a line, with path, value, limit and remedy.
    """
    layers = gather(section, model, path=path, flags=flags, environ=environ)
    try:
        return model.model_validate(layers.values)
    except ValidationError as error:
        raise ConfigurationError(explain(error, model, layers)) from None


def _properties(prefix: str, value: Mapping[Any, Any]) -> Iterator[tuple[str, str]]:
    for key, item in value.items():
        if isinstance(item, Mapping):
            yield from _properties(f"{prefix}{key}.", item)
        elif item is not None:
            if not isinstance(item, str) and (is_secret(str(key)) or str(key).endswith("username")):
                raise ValueError(f"YAML reads {prefix}{key} as {type(item).__name__}, not as text; put it in quotes")
            yield f"{prefix}{key}", str(item).lower() if isinstance(item, bool) else str(item)
