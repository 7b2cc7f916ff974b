"""Translates OTLP attributes to Prometheus labels: legal names, colliding keys joined, values escaped."""

import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from operator import itemgetter
from typing import Final, NamedTuple

from kernelcast.columnar import Attributes
from kernelcast.wire.resource import BOOT_ID

PRODUCER_KEYS: Final = ("service.namespace", "service.name", "service.instance.id")
"""Resource attributes from which `job` and `instance` are made."""

HOST_KEYS: Final = (BOOT_ID, "host.id")
"""Attributes that distinguish hosts with the same name; the first one present is used."""

LONGEST_LABELS_BYTES: Final = 8 * 1024
"""Longest rendered labels, ten times those of any metric in the catalogue; longer ones would make pages useless."""
TEMPLATES_KEPT: Final = 1024
"""Size of the cache of templates; most metrics of a fleet have one of a few sets of keys."""

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
    if _needs_escapes(text, len(labels)):
        text = ",".join([f'{name}="{labels[name].translate(_ESCAPED)}"' for name in sorted(labels)])
    return text.encode()


def _needs_escapes(text: str, labels: int) -> bool:
    """Whether labels that were written without escapes have a value with a character that needs one."""
    return "\\" in text or "\n" in text or text.count('"') != 2 * labels


class _Template(NamedTuple):
    """Labels without their values.

    Attributes:
        text: Has `%s` in the place of each value.
        pick: Returns the values in the order of the text; see `_template`.
        labels: Number of labels.
    """

    text: str
    pick: Callable[[tuple[str, ...]], tuple[str, ...]]
    labels: int


class LabelRenderer:
    """Renders the labels of series with one resource and scope, whose kind has one style; any thread may use it.

    Args:
        fixed: Labels that no attribute replaces; an attribute with such a name gets the prefix `exported_`.
        promoted: Labels that an attribute with the same name replaces.
        own: Names of labels that the kind's samples have themselves; others with such a name get the prefix, too.
        quantile: The label that a summary's quantile has, else empty.
    """

    def __init__(
        self, fixed: Mapping[str, str], promoted: Mapping[str, str], own: tuple[str, ...], quantile: bytes
    ) -> None:
        self._fixed = dict(fixed)
        self._promoted = {f"exported_{name}" if name in own else name: value for name, value in promoted.items()}
        self._quantile = quantile
        self._names = (tuple(self._fixed), tuple(self._promoted), own)
        self._values = (*self._fixed.values(), *self._promoted.values())

    def __call__(self, attributes: Attributes) -> bytes | None:
        """Return the labels of a series with these attributes; None if they are too long."""
        labels = self._from_template(attributes)
        if labels is None:
            labels = self.one_by_one(attributes)
        if len(labels) > LONGEST_LABELS_BYTES:
            return None
        return b",".join(filter(None, (labels, self._quantile))) if self._quantile else labels

    def one_by_one(self, attributes: Attributes) -> bytes:
        """Return the labels, without the quantile, for any attributes."""
        fixed, _, own = self._names
        return rendered(self._promoted | joined(attributes, (*fixed, *own)) | self._fixed)

    def _from_template(self, attributes: Attributes) -> bytes | None:
        """Return the same; None where keys are joined, or a value is empty or is to be escaped."""
        template = _template(tuple([key for key, _ in attributes]), *self._names)
        values = (*[value for _, value in attributes], *self._values)
        if template is None or "" in values:
            return None
        text = template.text % template.pick(values)
        return None if _needs_escapes(text, template.labels) else text.encode()


@lru_cache(maxsize=TEMPLATES_KEPT)
def _template(
    keys: tuple[str, ...], fixed: tuple[str, ...], promoted: tuple[str, ...], own: tuple[str, ...]
) -> _Template | None:
    """Return the template for keys; its values are those of the keys, of the fixed labels and of the promoted ones.

    None if several keys have the same label, whose values are joined, or if there is one label at most, for which
    `itemgetter` returns no tuple.
    """
    reserved = (*fixed, *own)
    names = [f"exported_{name}" if name in reserved else name for name in map(label_name, keys)]
    # As in `one_by_one`, the later of two labels with one name counts.
    places = {name: i for i, name in enumerate(promoted, len(keys) + len(fixed))}
    places |= {name: i for i, name in enumerate(names)}
    places |= {name: i for i, name in enumerate(fixed, len(keys))}
    order = sorted(places)
    if len(set(names)) < len(names) or len(order) <= 1:
        return None
    text = ",".join([f'{name}="%s"' for name in order])
    return _Template(text, itemgetter(*[places[name] for name in order]), len(order))


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
