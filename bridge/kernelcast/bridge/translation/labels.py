"""Renders the labels of series: from a template where only values differ, or else label by label.

Example: the 8 GPUs of each node have the same keys, so `Hostname="%s",UUID="%s",…` is made once for a whole fleet.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from operator import itemgetter
from typing import Final, NamedTuple

from kernelcast.bridge.translation.attributes import joined, label_name, needs_escapes, rendered
from kernelcast.columnar import Attributes

LONGEST_LABELS_BYTES: Final = 8 * 1024
"""Longest rendered labels, ten times those of any metric in the catalogue; longer ones would make pages useless."""
TEMPLATES_KEPT: Final = 1024
"""Size of the cache of templates; most metrics of a fleet have one of a few sets of keys."""


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
        return None if needs_escapes(text, template.labels) else text.encode()


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
