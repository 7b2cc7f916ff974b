"""Translates OTLP attributes to Prometheus labels: legal names, colliding keys joined, values escaped."""

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final

from kernelcast.columnar import Attributes
from kernelcast.wire.resource import BOOT_ID

PRODUCER_KEYS: Final = ("service.namespace", "service.name", "service.instance.id")
"""Resource attributes from which `job` and `instance` are made."""

HOST_KEYS: Final = (BOOT_ID, "host.id")
"""Attributes that distinguish hosts with the same name; the first one present is used."""

_ILLEGAL: Final = re.compile(r"[^a-zA-Z0-9]+")
_ESCAPED: Final = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


@lru_cache(maxsize=10_000)
def label_name(key: str) -> str:
    """A legal label name.

    Runs of other characters and of underscores become one underscore, so that no name starts with the two that
    Prometheus reserves.
    """
    name = _ILLEGAL.sub("_", key) or "_"
    return f"key_{name}" if name[0].isdigit() else name


def joined(attributes: Iterable[tuple[str, str]], reserved: Iterable[str] = (), prefix: str = "") -> dict[str, str]:
    """Return the labels of attributes without empty values; values of keys with the same label name are joined by `;`.

    Args:
        attributes: Sorted by key, which is the order in which values are joined.
        reserved: Names that are used otherwise; such labels get the prefix `exported_`, as in Prometheus.
        prefix: Prefix of every key.
    """
    labels: dict[str, str] = {}
    for key, value in attributes:
        if value:
            name = label_name(prefix + key)
            if name in reserved:
                name = f"exported_{name}"
            labels[name] = f"{labels[name]};{value}" if name in labels else value
    return labels


def rendered(labels: Mapping[str, str]) -> bytes:
    """Format labels: `a="b",c="d"`, sorted by name, values escaped, without braces."""
    text = ",".join([f'{name}="{labels[name]}"' for name in sorted(labels)])
    if needs_escapes(text, len(labels)):
        text = ",".join([f'{name}="{labels[name].translate(_ESCAPED)}"' for name in sorted(labels)])
    return text.encode()


def needs_escapes(text: str, labels: int) -> bool:
    """Whether labels that were written without escapes have a value with a character that needs one."""
    return "\\" in text or "\n" in text or text.count('"') != 2 * labels


@lru_cache(maxsize=4096)
def producer_of(resource: Attributes) -> tuple[str, str]:
    """Return `job` and `instance` of a resource, empty if it does not have them."""
    known = dict(resource)
    job = "/".join(part for part in (known.get("service.namespace"), known.get("service.name")) if part)
    return job, known.get("service.instance.id", "")


@lru_cache(maxsize=4096)
def host_of(resource: Attributes) -> str:
    """Return a unique id of the host of a resource with a named instance; empty if it has none.

    Without `service.instance.id` the resource claims no identity of its own, so several hosts may share it.
    """
    known = dict(resource)
    if not known.get("service.instance.id"):
        return ""
    return next((f"{key}={known[key]}" for key in HOST_KEYS if known.get(key)), "")


def target_of(resource: Attributes) -> Attributes:
    """Return a resource's attributes without those that make `job` and `instance`."""
    return tuple((key, value) for key, value in resource if value and key not in PRODUCER_KEYS)


def producer_labels(producer: tuple[str, str]) -> dict[str, str]:
    """Return the labels `job` and `instance`, without empty ones."""
    return {name: value for name, value in zip(("job", "instance"), producer, strict=True) if value}
