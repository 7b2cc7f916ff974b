"""A suspended bridge hides its partitions until it knows whether it still has them."""

import pytest
from prometheus_client import CollectorRegistry
from starlette.routing import Route
from tests.support.bridge.fleet import LAUNCHES, Browser, Site, launches, samples
from tests.support.runtime.kafka_record import Record

from kernelcast.bridge.expose.exposition import Exposition
from kernelcast.bridge.intake.parts import IntakePolicy

P0 = ("kernels", 0)
PART = "?shard=0/1"


def running(*, grouped: bool = True) -> Site:
    """A bridge that exposes one series."""
    site = Site(policy=IntakePolicy(grouped=grouped))
    site.kafka.assign(site.intake, P0)
    site.export(0, launches(5, time_ns=1))
    site.read_all()
    site.run(3)
    return site


def shown(site: Site, query: str = "", **headers: str) -> list[float]:
    """The lines of the series in a scrape."""
    exposition = Exposition(
        site.store, CollectorRegistry(), observe=lambda *_: None, hidden=lambda: site.intake.membership.doubtful
    )
    answer = Browser(Route("/metrics", exposition.answer)).ask("GET", f"/metrics{query}", headers=headers)
    assert answer.status_code == 200
    return [value for (name, _), value in samples(answer.text).items() if name == LAUNCHES]


@pytest.mark.parametrize("query", ["", PART])
def test_the_first_scrape_after_a_suspension_beyond_the_session_shows_no_series_from_kafka(query: str) -> None:
    site = running()
    assert shown(site, query) == [5]
    site.clock.seconds += 11
    assert shown(site, query) == []
    ready, reason = site.intake.readiness()
    assert not ready
    assert "has not been polled for 11 s" in reason


def test_a_poll_alone_does_not_show_the_series_again_when_kafka_refuses_the_commit() -> None:
    site = running()
    site.clock.seconds += 11
    site.kafka.fenced = True
    for _ in range(5):
        site.run(1)
        assert shown(site) == []
        assert site.intake.readiness()[0] is False
    assert site.kafka.waited_commits <= 5


def test_a_commit_that_kafka_accepts_shows_the_series_again() -> None:
    site = running()
    site.clock.seconds += 11
    site.intake.step()
    assert shown(site) == [5]
    assert site.intake.readiness() == (True, "")


def test_a_member_that_has_lost_its_partitions_exposes_its_next_assignment() -> None:
    site = running()
    site.clock.seconds += 60
    site.kafka.fenced = True
    site.intake.step()
    site.kafka.revoke(site.intake, P0, lost=True)
    assert shown(site) == []
    site.export(0, launches(6, time_ns=2))
    site.kafka.assign(site.intake, P0)
    site.read_all()
    assert shown(site) == [6]
    assert site.intake.readiness() == (True, "")


def test_a_suspension_inside_a_poll_is_noticed_when_it_returns(monkeypatch: pytest.MonkeyPatch) -> None:
    site = running()
    original = site.kafka.consume

    def suspended(*arguments: object) -> tuple[list[Record], list[object]]:
        site.clock.seconds += 30
        return original(*arguments)

    monkeypatch.setattr(site.kafka, "consume", suspended)
    site.kafka.fenced = True
    site.intake.step()
    assert shown(site) == []


def test_a_pause_within_the_session_hides_nothing_and_asks_nothing() -> None:
    site = running()
    site.clock.seconds += 8
    assert shown(site) == [5]
    site.intake.step()
    assert shown(site) == [5]
    assert site.kafka.waited_commits == 0


def test_without_a_group_partitions_stay_so_nothing_is_hidden() -> None:
    site = running(grouped=False)
    site.clock.seconds += 60
    assert shown(site) == [5]
    site.intake.step()
    assert site.kafka.waited_commits == 0
