"""The rules use existing metrics and have complete texts; promtool tests when they fire and when they do not."""

import re
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import promql_parser
import pytest
import yaml
from tests.unit.grafana.queries import GENERATED, REPOSITORY, SCRAPED, boards, labels_of, panels, parse, recorded

from kernelcast.grafana import rules
from kernelcast.grafana.rules.model import duration
from kernelcast.wire.catalogue import BY_PROMETHEUS_NAME
from kernelcast.wire.errors import ConfigurationError

RECORDED = recorded()
ALERTS = rules.alerts(rules.PRODUCTION)
TEST_FILES = sorted((GENERATED / "rules" / "tests").glob("*.yaml"))
ACTIONS = re.compile(
    "(Act|Ask|Check|Compare|Connect|Do|Drain|Find|Have|Let|Log|Look|Measure|Read|Restart|Run|See|Take) "
)
"""With which a first step begins."""
RECORD_NAME = re.compile(r"[a-z]+:[A-Za-z_]+:[a-z0-9]+")


def expressions(profile: rules.Profile) -> list[dict[str, Any]]:
    documents = [yaml.safe_load(text) for text in rules.render(profile).values()]
    return [rule for document in documents for group in document["groups"] for rule in group["rules"]]


def available(expr: str) -> frozenset[str]:
    made = frozenset(re.findall(r'"(\w+)", "[^"]*", "\w*", "[^"]*"\)', expr))
    return made.union(*(labels_of(name, RECORDED) for name, _ in parse(expr).selectors))


@pytest.mark.parametrize("rule", expressions(rules.PRODUCTION), ids=lambda rule: rule.get("alert") or rule["record"])
def test_a_rule_names_only_metrics_and_labels_that_are_emitted(rule: dict[str, Any]) -> None:
    parsed = parse(rule["expr"])
    assert parsed.selectors or rule["expr"] == "vector(1)"
    for metric, matched in parsed.selectors:
        assert matched <= labels_of(metric, RECORDED), f"{metric} has no {matched - labels_of(metric, RECORDED)}"
    # kernel_class, say, is left out of the forecasts of GPUs, but the forecasts of kernels have it.
    assert parsed.labels <= available(rule["expr"]) | SCRAPED


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_an_alert_has_a_description_and_an_action(alert: rules.AlertRule) -> None:
    rule = alert.to_rule(rules.PRODUCTION)
    assert re.fullmatch(r"([A-Z][a-z0-9]+)+", alert.name)
    assert set(rule["annotations"]) == {"summary", "description", "action"}, "links are a site's"
    assert rule["labels"]["severity"] in {"critical", "warning", "info", "none"}
    assert "$value" not in str(rule["labels"]), "a label that changes makes a new alert each time"
    named = set(re.findall(r"\$labels\.(\w+)", str(rule["annotations"])))
    assert named <= (available(alert.expr) | SCRAPED), "a text names a label that the alert cannot have"
    assert all(text.count("{{") == text.count("}}") for text in rule["annotations"].values())


def test_a_text_that_names_the_list_of_findings_says_where_it_is_without_kafka() -> None:
    texts = [text for alert in ALERTS for text in (alert.description, alert.first or alert.action)]
    naming = [text for text in texts if "kernelcast findings list" in text]
    assert naming
    assert all("/api/v1/findings" in text for text in naming)


@pytest.mark.parametrize("profile", rules.PROFILES.values(), ids=lambda profile: profile.name)
def test_a_text_that_asks_for_values_looks_back_over_two_of_them(profile: rules.Profile) -> None:
    """One written between the condition and its text took the reasons out of the text, which a kept alert keeps."""
    texts = [text for alert in rules.alerts(profile) for text in alert.to_rule(profile)["annotations"].values()]
    asked = [text for text in texts if re.search(r"\bquery\b", text)]
    assert asked
    for text in asked:
        assert re.search(rf"(max|last)_over_time\([^)]+\[{duration(2 * profile.evaluation_seconds)}\]\)", text), text


def test_alerts_of_ours_are_found_by_their_names() -> None:
    names = [alert.name for alert in ALERTS]
    assert len({(alert.name, alert.severity) for alert in ALERTS}) == len(ALERTS)
    assert all(name.startswith("Kernelcast") for name in names if name != "Watchdog")


def test_the_alerts_are_in_seven_groups_of_at_most_20() -> None:
    groups = yaml.safe_load(rules.render(rules.PRODUCTION)[rules.ALERTS_FILE])["groups"]
    assert len(groups) == 7
    assert max(len(group["rules"]) for group in groups) <= 20


@pytest.mark.parametrize(
    ("runbooks_url", "link"),
    [
        ("http://bridge-1:19401/runbooks/", "http://bridge-1:19401/runbooks/KernelcastGpuDown"),
        ("https://wiki.example/kernelcast", "https://wiki.example/kernelcast#kernelcastgpudown"),
    ],
)
def test_an_alert_links_to_its_runbook_where_the_site_names_an_address(runbooks_url: str, link: str) -> None:
    (alert,) = (one for one in ALERTS if one.name == "KernelcastGpuDown")
    annotations = alert.to_rule(replace(rules.PRODUCTION, runbooks_url=runbooks_url))["annotations"]
    assert annotations["runbook_url"] == link
    assert annotations["description"] == alert.description


def test_an_alert_without_an_address_of_runbooks_has_the_first_step_in_its_text() -> None:
    for alert in ALERTS:
        description = alert.to_rule(rules.PRODUCTION)["annotations"]["description"]
        assert description == f"{alert.description} First: {alert.action}"


def test_a_runbook_begins_with_an_action_and_folds_the_expression() -> None:
    sections = re.split(r"^## ", rules.runbooks(rules.PRODUCTION), flags=re.MULTILINE)[1:]
    for section in sections:
        name, _, first, *_ = section.splitlines()
        assert ACTIONS.match(first.removeprefix("**First:** ")), (name, first)
        unfolded = re.sub(r"<details.*?</details>", "", section, flags=re.DOTALL)
        assert section.count("<details") == 1
        assert "promql" not in unfolded


def test_every_alert_has_a_runbook() -> None:
    page = rules.runbooks(rules.PRODUCTION)
    assert "{{" not in page, "a page about all alerts of a name cannot fill in one's labels"
    assert (REPOSITORY / "docs" / "runbooks.md").read_text() == page, "run: make docs"
    for alert in ALERTS:
        heading = alert.name.lower()
        assert heading in {line.removeprefix("## ").lower() for line in page.splitlines() if line.startswith("## ")}
        assert alert.action.partition("{{")[0] in page
        assert all(step in page for step in alert.steps)


def test_an_alert_leads_to_a_dashboard_that_exists_and_has_the_variables_it_sets() -> None:
    pages = boards()
    with_grafana = replace(rules.PRODUCTION, dashboard_url="https://grafana/d/kernelcast-kernels")
    for alert in ALERTS:
        url = urlsplit(alert.to_rule(with_grafana)["annotations"]["dashboard_url"])
        board = pages[f"{url.path.rpartition('/')[2]}.json"]
        variables = {variable["name"] for variable in board["templating"]["list"]}
        assert {*re.findall(r"var-(\w+)=", url.query)} <= variables, alert.name


@pytest.mark.parametrize("name", sorted(RECORDED))
def test_a_recording_says_level_metric_operation_or_is_a_row_of_the_catalogue(name: str) -> None:
    """Series of engines get the names under which an exporter writes them."""
    assert RECORD_NAME.fullmatch(name) or re.sub("_(bucket|sum|count)$", "", name) in BY_PROMETHEUS_NAME


def test_both_dialects_record_the_same_names() -> None:
    files = rules.render(rules.PRODUCTION)
    names = [
        {rule["record"] for group in yaml.safe_load(files[name])["groups"] for rule in group["rules"]}
        for name in (rules.CLASSIC_FILE, rules.NATIVE_FILE)
    ]
    assert names[0] == names[1] == RECORDED.keys()


def test_sums_forget_the_instance_so_that_a_series_outlives_a_restart_elsewhere() -> None:
    rates = [rule for rule in expressions(rules.PRODUCTION) if "record" in rule and "rate(" in rule["expr"]]
    assert rates
    for rule in rates:
        assert re.search(r"sum( without \(instance\b[^)]*\) )?\(rate\(", rule["expr"]), rule["record"]


def test_what_is_recorded_every_five_minutes_is_read_over_a_range() -> None:
    """Its last sample is up to five minutes old, and Prometheus sees none that is older as present."""
    files = rules.render(rules.PRODUCTION)
    groups = [group for text in files.values() for group in yaml.safe_load(text)["groups"]]
    slow = {rule["record"] for group in groups if group["interval"] == "5m" for rule in group["rules"]}
    readers = [rule["expr"] for group in groups for rule in group["rules"]]
    readers += [target["expr"] for board in boards().values() for panel in panels(board) for target in panel["targets"]]
    found = [(name, expr) for name in slow for expr in readers if name in expr]
    assert {name for name, _ in found} == slow, "a recording that nobody reads"
    for name, expr in found:
        assert not re.search(rf"(?<!\w){re.escape(name)}(?!({{[^}}]*}})?\[)", expr), expr


def test_every_alert_is_proved_to_fire_and_not_to_fire() -> None:
    fires, silent = set[str](), set[str]()
    for file in TEST_FILES:
        for case in yaml.safe_load(file.read_text())["tests"]:
            for check in case.get("promql_expr_test", []):
                if wanted := re.search(r'alertname="(\w+)"', check["expr"]):
                    (fires if check["exp_samples"] else silent).add(wanted[1])
    names = {alert.name for alert in ALERTS} - {"Watchdog"}
    assert names <= fires, f"no test sees these fire: {names - fires}"
    assert names <= silent, f"no test sees these keep still: {names - silent}"


@pytest.mark.slow
def test_the_demo_profile_changes_durations_and_nothing_else() -> None:
    def timeless(rule: dict[str, Any]) -> str:
        text = re.sub(r"(time\(\) - [^<]+ < )\d+", r"\1T", str({**rule, "for": "T"}))
        return re.sub(r"\b\d+(ms|[smhdwy])\b", "T", text)

    production, demo = (list(map(timeless, expressions(profile))) for profile in (rules.PRODUCTION, rules.DEMO))
    assert production == demo


def test_the_demo_profile_is_done_within_seconds() -> None:
    for rule in expressions(rules.DEMO):
        held = promql_parser.parse_duration(rule["for"]).total_seconds() if "for" in rule else 0
        assert held <= 60, rule


def test_a_demo_that_has_just_started_or_misses_two_scrapes_fires_no_alert() -> None:
    """A Prometheus that has just started has no target for 5 s."""
    held = [
        promql_parser.parse_duration(rule["for"]).total_seconds() for rule in expressions(rules.DEMO) if "for" in rule
    ]
    assert min(held) >= 10


def test_a_profile_that_does_not_exist_is_refused_with_those_that_do() -> None:
    with pytest.raises(ConfigurationError, match="production, demo"):
        rules.profile_named("staging")


def test_a_link_sets_only_what_the_alert_has_and_one_that_compares_shows_all_to_compare() -> None:
    """An empty variable would choose nothing: a finding about a program has no node."""
    named = replace(rules.PRODUCTION, dashboard_url="https://g/d/kernelcast-kernels")
    links = {alert.name: alert.to_rule(named)["annotations"]["dashboard_url"] for alert in rules.alerts(named)}
    assert not [name for name, link in links.items() if re.search("&({{ end }}|$)", link)], "a link ends in no sign"
    assert "{{ with $labels.Hostname }}var-hostname=" in links["KernelcastWorkSlower"]
    for name in ("KernelcastStraggler", "KernelcastJobStandsStill", "KernelcastRankEnded", "KernelcastKernelSlower"):
        assert "var-program" in links[name]
        assert "var-rank" not in links[name]
        assert "var-gpu" not in links[name]
    for name in ("KernelcastGpuThrottling", "KernelcastGpuPcieLinkDegraded"):
        assert "var-hostname" in links[name]
        assert "var-gpu" not in links[name]


def test_an_alert_that_fires_at_once_compares_no_two_recordings_of_a_group() -> None:
    """Prometheus evaluates groups at the same time: one of two recordings may be newer than the other."""
    texts = rules.render(rules.PRODUCTION)
    groups = yaml.safe_load(texts[rules.CLASSIC_FILE])["groups"]
    group_of = {rule["record"]: group["name"] for group in groups for rule in group["rules"]}
    at_once = [alert for alert in rules.alerts(rules.PRODUCTION) if not alert.hold_seconds]
    for alert in at_once:
        compared = re.sub(r"present_over_time\([^)]*\)", "", alert.expr)
        read = [group_of[name] for name in {*re.findall(r"\w+:\w+:\w+", compared)}]
        assert len(read) == len({*read}), alert.name
    assert len(at_once) > 1
