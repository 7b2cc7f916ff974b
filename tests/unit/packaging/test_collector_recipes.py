"""The recipes of deploy/collector agree with the catalogue and the topics."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from kernelcast.wire.catalogue import CATALOGUE, Kind, Metric, translate
from kernelcast.wire.topics import METRIC_TOPICS

FOLDER = Path(__file__).parents[3] / "deploy" / "collector"
ON_KAFKA = [row for row in CATALOGUE if row.otlp_name]


@pytest.fixture
def push() -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load((FOLDER / "push.yaml").read_text())
    return content


def matched(condition: str) -> set[str]:
    """Names of the metrics for which a condition of a processor holds."""
    (pattern,) = re.findall(r'IsMatch\(metric\.name, "(.+)"\)', condition)
    return {row.otlp_name for row in ON_KAFKA if re.search(pattern.replace("\\\\", "\\"), row.otlp_name)}


def test_every_pipeline_reads_all_topics_of_metrics(push: dict[str, Any]) -> None:
    for receiver in push["receivers"].values():
        assert receiver["metrics"]["topics"] == [topic.name for topic in METRIC_TOPICS]


def test_what_the_bridge_does_not_expose_is_left_out(push: dict[str, Any]) -> None:
    (condition,) = push["processors"]["filter/kernelcast"]["metric_conditions"]
    assert matched(condition) == {row.otlp_name for row in ON_KAFKA if not row.exposed}


def test_what_a_store_would_rename_is_changed(push: dict[str, Any]) -> None:
    rename, convert = push["processors"]["transform/kernelcast"]["metric_statements"]
    renamed = {row for row in ON_KAFKA if _name_in_a_store(row) != row.prometheus_name}
    counters = {row.otlp_name for row in ON_KAFKA if row.kind is Kind.COUNTER}
    assert matched(convert) & counters == {row.otlp_name for row in renamed if row.kind is Kind.COUNTER}
    (row,) = (row for row in renamed if row.kind is not Kind.COUNTER)
    name = f"{row.otlp_name}.info"
    assert rename == f'set(metric.name, "{name}") where metric.name == "{row.otlp_name}"'
    assert translate(name, row.unit, Kind.GAUGE) == row.prometheus_name


def _name_in_a_store(row: Metric) -> str:
    """The name that a store of OTLP gives to a metric; OTLP has no kind of its own for infos."""
    return translate(row.otlp_name, row.unit, Kind.GAUGE if row.kind is Kind.INFO else row.kind)


def test_an_offset_is_committed_when_the_store_has_accepted_the_point(push: dict[str, Any]) -> None:
    exporters = push["exporters"]
    assert exporters["otlp_http"]["sending_queue"] == {"enabled": False}
    assert exporters["prometheus_remote_write"]["remote_write_queue"] == {"enabled": False}
    for receiver in push["receivers"].values():
        assert receiver["message_marking"]["after"]
        assert not receiver["message_marking"]["on_error"]
        assert receiver["error_backoff"]["max_elapsed_time"] == "0s"
    groups = [receiver["group_id"] for receiver in push["receivers"].values()]
    assert len(set(groups)) == len(groups)
