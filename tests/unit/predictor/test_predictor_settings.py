"""Settings of the predictor that are refused, and what a time zone and holidays become."""

import math
from datetime import date
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from pydantic import ValidationError

from kernelcast.predictor.local_time import LocalTime
from kernelcast.predictor.settings import PredictorSettings


@pytest.mark.parametrize(
    "given",
    [
        {"expire_seconds": math.inf},
        {"horizons_seconds": (300.0, math.inf)},
        {"horizons_seconds": (math.nan,)},
        {"hints": {"cooldown_seconds": math.inf}},
        {"alarms": {"clear_seconds": math.inf}},
        {"judge": {"thresholds": {"m": math.nan}}},
    ],
)
def test_numbers_that_are_not_finite_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="finite number"):
        PredictorSettings(**given)


def test_a_limits_horizon_is_no_nearer_than_an_interval() -> None:
    def limited(*horizons_seconds: float) -> PredictorSettings:
        return PredictorSettings.model_validate({"limits": [{"metric": "m", "horizons_seconds": horizons_seconds}]})

    with pytest.raises(ValidationError, match=r"the nearest of horizons_seconds is 0\.001; .* interval_seconds, 10;"):
        limited(0.001, 300.0)
    assert limited(10.0).limits[0].horizons_seconds == (10.0,)


@pytest.mark.parametrize("name", ["Berlin", "", "Europe", "../Europe/Berlin"])
def test_a_time_zone_has_a_name_of_iana(name: str) -> None:
    with pytest.raises(ValidationError, match="is no time zone; write its IANA name, such as Europe/Berlin"):
        PredictorSettings.model_validate({"time_zone": name})


def test_holidays_are_dates_by_the_clock_of_the_site() -> None:
    given = PredictorSettings.model_validate({"time_zone": "Europe/Berlin", "holidays": ["2026-12-25"]})
    assert given.local_time == LocalTime(ZoneInfo("Europe/Berlin"), frozenset({date(2026, 12, 25)}))
    assert PredictorSettings().local_time == LocalTime()


@pytest.mark.parametrize("url", ["prometheus:9090", "htp://ann:pw@host", "http://[::1"])
def test_an_address_of_prometheus_that_is_none_is_refused_at_the_start(url: str) -> None:
    with pytest.raises(ValidationError, match="write it as http://HOST:PORT") as error:
        PredictorSettings.model_validate({"prometheus": {"url": url}})
    assert "pw" not in str(error.value)
    good = "http://ann:pw@prometheus:9090"
    assert PredictorSettings.model_validate({"prometheus": {"url": good}}).prometheus.url == good
