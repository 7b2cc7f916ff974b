"""One protocol for one set of methods; Kafka's consumer is divided by role."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from kernelcast.runtime.kafka.consumer import Consumer

ROOT: Final = Path(__file__).parents[3]
ROOTS: Final = ("core", "exporter", "bridge", "grafana")


def protocols(root: str) -> Iterator[tuple[str, frozenset[str]]]:
    """Place and signatures of each protocol that adds methods to its bases."""
    for path in sorted((ROOT / root).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and any("Protocol" in ast.unparse(base) for base in node.bases):
                functions = [part for part in node.body if isinstance(part, ast.FunctionDef)]
                signatures = frozenset(
                    f"{part.name}({ast.unparse(part.args)}) -> {ast.unparse(part.returns or ast.Constant(None))}"
                    for part in functions
                )
                yield f"{path.relative_to(ROOT)}: {node.name}", signatures


@pytest.mark.slow
def test_equal_protocols_are_defined_once() -> None:
    places = defaultdict(list)
    for root in ROOTS:
        for place, signatures in protocols(root):
            places[signatures].append(place)
    assert len(places) > 20
    assert [same for same in places.values() if len(same) > 1] == []


def test_only_membership_of_a_group_is_left_in_the_consumer() -> None:
    public = {name for name in vars(Consumer) if not name.startswith("_")}
    assert public == {"subscribe", "settled", "committed", "commit", "close"}
