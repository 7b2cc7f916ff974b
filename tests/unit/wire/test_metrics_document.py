"""`docs/metrics.md` equals the catalogue."""

from tests.unit.grafana.queries import REPOSITORY

from kernelcast.wire.catalogue import CATALOGUE
from kernelcast.wire.catalogue.diagnosis import document as diagnosis_document
from kernelcast.wire.catalogue.document import document


def test_the_committed_page_equals_the_catalogue() -> None:
    committed = (REPOSITORY / "docs" / "metrics.md").read_text()
    assert committed == document(), "run: make docs"


def test_the_committed_page_of_rules_equals_the_catalogue() -> None:
    committed = (REPOSITORY / "docs" / "diagnosis.md").read_text()
    assert committed == diagnosis_document.document(), "run: make docs"


def test_every_metric_has_a_line_of_its_own() -> None:
    lines = document().splitlines()
    for row in CATALOGUE:
        (line,) = [line for line in lines if line.startswith(f"| `{row.prometheus_name}` |")]
        assert row.help.replace("|", "\\|") in line
        assert all(f"`{label}`" in line for label in row.labels)
