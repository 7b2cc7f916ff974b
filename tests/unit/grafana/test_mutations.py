"""Mutations of the model, each of which makes a named check fail: the checks see the mistakes that they are for."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
from tests.unit.grafana import test_dashboard_format, test_dashboard_queries, test_pages
from tests.unit.grafana.queries import boards, rendered_again
from tests.unit.grafana.rules import test_inhibitions, test_rule_files, test_site_rules

from kernelcast.grafana import alertmanager, consequences, rules
from kernelcast.grafana.model import label_links, panels, tables
from kernelcast.grafana.model.targets import Query
from kernelcast.grafana.rules.model import AlertRule

pytestmark = pytest.mark.nightly

Patch = pytest.MonkeyPatch
Json = dict[str, Any]


def targets(edit: Callable[[Json], Json]) -> Callable[[Patch], None]:
    """A mutation of every query of every panel."""
    original = Query.to_target
    return lambda patch: patch.setattr(Query, "to_target", lambda *given: edit(original(*given)))


def panel_queries(old: str, new: str) -> Callable[[Patch], None]:
    return targets(lambda target: target | {"expr": target["expr"].replace(old, new)})


def alert_rules(edit: Callable[[Json], Json]) -> Callable[[Patch], None]:
    """A mutation of every alert."""
    original = AlertRule.to_rule
    return lambda patch: patch.setattr(AlertRule, "to_rule", lambda *given: edit(original(*given)))


def alert_queries(old: str, new: str) -> Callable[[Patch], None]:
    return alert_rules(lambda rule: rule | {"expr": rule["expr"].replace(old, new)})


def result(owner: Any, name: str, edit: Callable[[Any], Any]) -> Callable[[Patch], None]:
    """A mutation of a function's return value."""
    original = getattr(owner, name)
    return lambda patch: patch.setattr(owner, name, lambda *given, **named: edit(original(*given, **named)))


def each_board(check: Callable[[Json], None]) -> Callable[[], None]:
    def run() -> None:
        for board in boards().values():
            check(board)

    run.__name__ = check.__name__
    return run


def each(check: Callable[..., None], cases: Callable[[], Iterator[tuple[Any, ...]]]) -> Callable[[], None]:
    def run() -> None:
        for case in cases():
            check(*case)

    run.__name__ = check.__name__
    return run


QUERIES = each(
    test_dashboard_queries.test_a_query_names_only_metrics_and_labels_that_are_emitted, test_dashboard_queries.queries
)
RULES = each(
    test_rule_files.test_a_rule_names_only_metrics_and_labels_that_are_emitted,
    lambda: ((rule,) for rule in test_rule_files.expressions(rules.PRODUCTION)),
)
ALERTS = each(
    test_rule_files.test_an_alert_has_a_description_and_an_action,
    lambda: ((alert,) for alert in rules.alerts(rules.PRODUCTION)),
)
CONSEQUENCES = each(
    test_inhibitions.test_every_declared_consequence_is_muted_on_its_subject_only,
    lambda: ((one,) for one in consequences.declared(rules.PRODUCTION)),
)
JOB = each_board(test_dashboard_format.test_every_selector_is_narrowed_to_a_job)
INSTANT = each_board(test_dashboard_format.test_a_figure_of_now_is_an_instant_query)
EMPTY_TEXT = each_board(test_dashboard_format.test_no_panel_has_a_text_of_its_own_for_an_empty_answer)
PROOF = each_board(test_dashboard_format.test_words_for_an_empty_result_need_a_measurement)
LINKS = each_board(test_pages.test_every_name_in_a_table_leads_on)
SITE_JOBS = test_site_rules.test_job_names_are_those_of_the_site


@dataclass(frozen=True, slots=True)
class Mutation:
    """A mistake, and the check that must see it."""

    name: str
    apply: Callable[[Patch], None]
    check: Callable[[], None]


def with_no_value(panel: Any) -> Any:
    panel.field_config["defaults"]["noValue"] = "none"
    return panel


def without_equal(inhibitions: list[Json]) -> list[Json]:
    return [{key: value for key, value in one.items() if key != "equal"} for one in inhibitions]


def reversed_direction(inhibitions: list[Json]) -> list[Json]:
    return [
        one | {"source_matchers": one["target_matchers"], "target_matchers": one["source_matchers"]}
        for one in inhibitions
    ]


def calm_constant(patch: Patch) -> None:
    original = panels._if_empty
    patch.setattr(panels, "_if_empty", lambda exprs, if_empty: original(exprs, replace(if_empty, proof="vector(1)")))


MUTATIONS = (
    Mutation("rename a metric in panels", panel_queries("kernelcast_gpu_up", "kernelcast_gpu_alive"), QUERIES),
    Mutation("rename a label in panels", panel_queries("Hostname", "hostname_of_gpu"), QUERIES),
    Mutation("rename a label in legends", targets(lambda one: one | {"legendFormat": "{{node_name}}"}), QUERIES),
    Mutation("rename a metric in alerts", alert_queries("kernelcast_gpu_up", "kernelcast_gpu_alive"), RULES),
    Mutation(
        "rename a label in texts of alerts",
        alert_rules(lambda one: one | {"annotations": one["annotations"] | {"summary": "{{ $labels.node_name }}"}}),
        ALERTS,
    ),
    Mutation("drop job from panels", panel_queries('job=~"$job", ', ""), JOB),
    Mutation("drop job from panels about daemons", panel_queries('{job=~"$service"}', ""), JOB),
    Mutation("drop job from alerts", alert_queries('up{job="monitoring/bridge"}', "up"), SITE_JOBS),
    Mutation("turn instant off", targets(lambda one: one | {"instant": False, "range": True}), INSTANT),
    Mutation(
        "set a calm noValue", result(panels, "_defaults", lambda defaults: defaults | {"noValue": "none"}), EMPTY_TEXT
    ),
    Mutation("set a calm noValue in tables", result(tables, "plain", with_no_value), EMPTY_TEXT),
    Mutation("say calm words without a proof", result(panels, "_if_empty", lambda _: "-1 * vector(1)"), PROOF),
    Mutation("say calm words with a constant as proof", calm_constant, PROOF),
    Mutation("drop links from tables", result(label_links, "in_column", lambda _: None), LINKS),
    Mutation("drop all inhibitions", result(alertmanager, "inhibitions", lambda _: []), CONSEQUENCES),
    Mutation("inhibit on every subject", result(alertmanager, "inhibitions", without_equal), CONSEQUENCES),
    Mutation("reverse inhibitions", result(alertmanager, "inhibitions", reversed_direction), CONSEQUENCES),
)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: f"{mutation.name}: {mutation.check.__name__}")
def test_a_mutation_makes_its_check_fail(mutation: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch, rendered_again():
        mutation.apply(patch)
        with pytest.raises(AssertionError):
            mutation.check()


@pytest.mark.parametrize("check", list(dict.fromkeys(one.check for one in MUTATIONS)), ids=lambda check: check.__name__)
def test_the_model_as_it_is_passes_each_of_these_checks(check: Callable[[], None]) -> None:
    check()
