"""Chooses the input of each message: by its headers, else by its topic's setting.

`intake.batch.decode` calls `groups` for each batch, on the consuming thread.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from kernelcast.bridge.inputs import registry
from kernelcast.bridge.inputs.formats import TopicFormat
from kernelcast.bridge.inputs.protocol import Input
from kernelcast.bridge.inputs.registry import JSON, OTLP_JSON, OTLP_PROTO, OWN, PROMETHEUS, REMOTE_WRITE
from kernelcast.bridge.inputs.unpacking import GZIP_MAGIC, ZSTD_MAGIC, snappy_length, unpacked
from kernelcast.columnar import DecoderLimits
from kernelcast.runtime.kafka.clients import MessageHeaders, StampedMessage
from kernelcast.wire.errors import DecodeError
from kernelcast.wire.topics import METRIC_TOPICS

ENCODING: Final = "encoding"
"""A header that names a format as the settings do; the Collector's encodings have the same names."""
CONTENT_TYPE: Final = "content-type"
CONTENT_ENCODING: Final = "content-encoding"
PROMETHEUS_TYPES: Final = re.compile(r"application/openmetrics-text|text/plain *;.*version=(0\.0\.4|1\.0\.0)")
REMOTE_WRITE_TYPES: Final = re.compile(r"application/x-protobuf *; *proto=(io\.prometheus\.write|prometheus)\.")
PACKED_MAGIC: Final = (GZIP_MAGIC, ZSTD_MAGIC)
"""No message of a format that is read begins with one of them, unless it is compressed."""
REGISTRY_MAGIC: Final = b"\0"
"""First byte of Confluent's wire format; no message of a format that is read begins with it."""
REGISTRY_BYTES: Final = 5
OTLP_START: Final = b"\n"
"""First byte of an export request with resources: the tag of its first field."""
MAX_UNPACKED_BYTES: Final = 32 * 1024 * 1024
"""Bytes of unpacked messages in memory at once, apart from the last message: 200 messages of 1 KB may unpack to 1.6 GB,
and their points take several times as much."""
WASTED_RATIO: Final = 4096
"""Unpacked bytes that a byte of a refused message counts for: it may have been unpacked in vain, which takes time."""
MAX_TOPICS: Final = 10_000
"""Topics whose setting is cached."""
NO_FORMATS: Final[Mapping[str, TopicFormat]] = {}
UNNAMED: Final = TopicFormat(format=OTLP_PROTO)
"""Settings of a topic that `bridge.formats` does not name."""
DEFAULT_LIMITS: Final = DecoderLimits()

Key = tuple[str, str]
"""A format, and the topic or pattern whose settings its input has; empty for defaults."""
UNRECOGNISED: Final[Key] = ("", "")


class TopicInput(NamedTuple):
    """What `bridge.formats` says about a topic.

    Attributes:
        entry: Its settings.
        key: The input of its messages without headers.
    """

    entry: TopicFormat
    key: Key


@dataclass(slots=True)
class InputGroup:
    """Messages of one batch that go to one input.

    Attributes:
        format: The format's name.
        input: The input that reads them; None where none can.
        indices: Which of the batch's messages.
        bodies: Their values, unpacked.
        failures: The reasons, where none can.
    """

    format: str
    input: Input | None
    indices: list[int] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    failures: list[DecodeError] = field(default_factory=list)


class Selection:
    """Chooses inputs, and makes each at its first message; for one thread.

    Args:
        decoder: Reads `otlp_proto`.
        formats: By topic, or by pattern if the name begins with `^`. Names have precedence over patterns, and the first
            matching pattern is used. Other topics are `otlp_proto`.
        limits: Limits of one message.
        max_identities: Largest number of series of each input besides `decoder`; None for its own default.
    """

    def __init__(
        self,
        decoder: Input,
        formats: Mapping[str, TopicFormat] = NO_FORMATS,
        *,
        limits: DecoderLimits = DEFAULT_LIMITS,
        max_identities: int | None = None,
    ) -> None:
        self._limits = limits
        self._options: dict[str, Any] = {"limits": limits}
        if max_identities is not None:
            self._options["max_identities"] = max_identities
        ours = {topic.name: TopicFormat(format=OTLP_PROTO) for topic in METRIC_TOPICS}
        self._named = ours | dict(formats)
        self._patterns = [name for name in formats if name.startswith("^")]
        self._topics: dict[str, TopicInput] = {}
        self._inputs: dict[Key, Input] = {(OTLP_PROTO, ""): decoder}

    def groups(self, messages: Sequence[StampedMessage]) -> Iterator[InputGroup]:
        """Sort a batch's messages by the input that reads them; the order within each input stays.

        Further messages are unpacked only after those of the first groups have been read, see MAX_UNPACKED_BYTES.
        """
        groups: dict[Key, InputGroup] = {}
        unpacked_bytes = 0
        for index, message in enumerate(messages):
            try:
                key, body = self._choose(message)
            except DecodeError as error:
                group = groups.setdefault(UNRECOGNISED, InputGroup("unknown", None))
                group.failures.append(error)
                unpacked_bytes += min(WASTED_RATIO * len(message.value() or b""), self._limits.message_bytes)
            else:
                known = groups.get(key)
                group = known if known is not None else groups.setdefault(key, InputGroup(key[0], self._input(key)))
                group.bodies.append(body)
                unpacked_bytes += self._unpacked_length(group.format, body)
            group.indices.append(index)
            if unpacked_bytes >= MAX_UNPACKED_BYTES:
                yield from groups.values()
                groups, unpacked_bytes = {}, 0
        yield from groups.values()

    def _unpacked_length(self, format_name: str, body: bytes) -> int:
        """Return the length of a body, which a remote write request may have in snappy; at most `message_bytes`."""
        length = snappy_length(body) if format_name == REMOTE_WRITE else None
        return min(max(len(body), length or 0), self._limits.message_bytes)

    def _choose(self, message: StampedMessage) -> tuple[Key, bytes]:
        """The input of a message, and its value unpacked.

        Raises:
            DecodeError: Its compression or its format is unknown.
        """
        topic, body = message.topic() or "", message.value() or b""
        known = self._topics.get(topic)
        entry, key = known if known is not None else self._learn(topic)
        headers = message.headers()
        named = ""
        if headers:
            named_headers = _format_headers(headers)
            body = unpacked(body, named_headers.get(CONTENT_ENCODING, ""), self._limits)
            named = _format_of(named_headers, entry)
        if body.startswith(REGISTRY_MAGIC) and len(body) >= REGISTRY_BYTES:
            raise _framed(body)
        if body.startswith(PACKED_MAGIC):
            body = unpacked(body, "gzip" if body.startswith(GZIP_MAGIC) else "zstd", self._limits)
        if named and named != entry.format:
            return (named, ""), body
        if entry is UNNAMED and body and not body.startswith(OTLP_START) and not named:
            raise _unrecognised(topic, body)
        return key, body

    def _learn(self, topic: str) -> TopicInput:
        """Return what the settings say about a topic, and remember it."""
        if len(self._topics) >= MAX_TOPICS:
            self._topics.clear()
        pattern = next((name for name in self._patterns if re.match(name, topic)), "")
        name = topic if topic in self._named else pattern
        entry = self._named.get(name, UNNAMED)
        variant = name if entry.model_fields_set - {"format"} else ""
        known = self._topics[topic] = TopicInput(entry, (entry.format, variant))
        return known

    def _input(self, key: Key) -> Input:
        made = self._inputs.get(key)
        if made is None:
            format_name, variant = key
            settings = self._named[variant] if variant else TopicFormat(format=format_name)
            made = self._inputs[key] = registry.found(format_name).load()(settings, **self._options)
        return made


def _format_headers(headers: MessageHeaders) -> dict[str, str]:
    """The headers that name a message's format, in lower case."""
    return {
        name.lower(): (value.decode(errors="replace") if isinstance(value, bytes) else value or "").strip().lower()
        for name, value in headers
        if name.lower() in (ENCODING, CONTENT_TYPE, CONTENT_ENCODING)
    }


def _format_of(named_headers: Mapping[str, str], entry: TopicFormat) -> str:
    """Return the format that headers name; empty if they do not determine it.

    `text/plain` alone may be Influx lines, and `application/x-protobuf` alone either protobuf format.
    """
    named = named_headers.get(ENCODING, "")
    if named == entry.format or (named != JSON and named in (OTLP_PROTO, *OWN)):
        return named
    content_type = named_headers.get(CONTENT_TYPE, "")
    if REMOTE_WRITE_TYPES.match(content_type):
        return REMOTE_WRITE
    if PROMETHEUS_TYPES.match(content_type):
        return PROMETHEUS
    if content_type.startswith("application/json"):
        return JSON if entry.format == JSON else OTLP_JSON
    return ""


def _framed(body: bytes) -> DecodeError:
    """The error for Confluent's wire format: a byte 0, the schema's id in 4 bytes, and the message behind them."""
    schema = int.from_bytes(body[1:REGISTRY_BYTES], "big")
    return DecodeError(
        f"message of {len(body)} bytes is framed for a Schema Registry: a byte 0, then the id of schema {schema}; the "
        "bridge reads messages without this frame; let the producer serialise them without the registry"
    )


def _unrecognised(topic: str, body: bytes) -> DecodeError:
    return DecodeError(
        f"message of {len(body)} bytes begins with {body[:20]!r}, so it is no OTLP, and no other format is named for "
        f"its topic; name it in bridge.formats ({topic}: influx, for instance, or a mapping of JSON)"
    )
