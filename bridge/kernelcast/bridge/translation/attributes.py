"""From OTLP attributes to Prometheus labels: legal names, colliding keys joined, values escaped."""

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final

from kernelcast.columnar import Attributes
from kernelcast.wire.resource import BOOT_ID

PRODUCER_KEYS: Final = ("service.namespace", "service.name", "service.instance.id")
"""What `job` and `instance` are made of."""

HOST_KEYS: Final = (BOOT_ID, "host.id")
"""Attributes that tell hosts apart although their names are the same; the first that is there counts."""

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
    """Labels of attributes; empty values are none, those of keys that become one name are joined with `;`.

    Args:
        attributes: Sorted by key, which is the order in which values are joined.
        reserved: Names that others have; here they get `exported_` before them, as Prometheus does it.
        prefix: What every key gets before it.
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
    """`a="b",c="d"`, sorted by name, values escaped, without braces."""
    text = ",".join([f'{name}="{labels[name]}"' for name in sorted(labels)])
    if "\\" in text or "\n" in text or text.count('"') != 2 * len(labels):
        text = ",".join([f'{name}="{labels[name].translate(_ESCAPED)}"' for name in sorted(labels)])
    return text.encode()


@lru_cache(maxsize=4096)
def producer_of(resource: Attributes) -> tuple[str, str]:
    """`job` and `instance` of a resource, empty where it does not name them."""
    known = dict(resource)
    job = "/".join(part for part in (known.get("service.namespace"), known.get("service.name")) if part)
    return job, known.get("service.instance.id", "")


@lru_cache(maxsize=4096)
def host_of(resource: Attributes) -> str:
    """The host that a resource with a named instance comes from; empty where it says nothing that is unique.

    Without `service.instance.id` the resource claims no identity of its own, so several hosts may share it.
    """
    known = dict(resource)
    if not known.get("service.instance.id"):
        return ""
    return next((f"{key}={known[key]}" for key in HOST_KEYS if known.get(key)), "")


def target_of(resource: Attributes) -> Attributes:
    """A resource's attributes besides `job` and `instance`."""
    return tuple((key, value) for key, value in resource if value and key not in PRODUCER_KEYS)


def producer_labels(producer: tuple[str, str]) -> dict[str, str]:
    """The labels `job` and `instance`; an empty one is none."""
    return {name: value for name, value in zip(("job", "instance"), producer, strict=True) if value}
