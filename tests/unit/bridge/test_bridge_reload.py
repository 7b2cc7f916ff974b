"""SIGHUP reads the bridge's settings again, and names those that need a restart."""

import logging
from collections.abc import Iterator

import pytest
from structlog.testing import capture_logs

from kernelcast.bridge.command import RELOADED, change
from kernelcast.bridge.settings import BridgeSettings
from kernelcast.runtime.reloading import reload
from kernelcast.runtime.settings.service import LogSettings
from kernelcast.wire.errors import ConfigurationError

STARTED = BridgeSettings(log=LogSettings(level="warning"))


@pytest.fixture(autouse=True)
def _level_as_before() -> Iterator[None]:
    level = logging.getLogger().level
    yield
    logging.getLogger().setLevel(level)


def test_the_log_changes_and_other_settings_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    changed = BridgeSettings(log=LogSettings(level="debug"), max_series=7, group_id="other")
    reload(STARTED, lambda: changed, change, reloaded=RELOADED)

    assert "take effect at the next start only" in (shown := capsys.readouterr().err)
    assert "settings=group_id,max_series" in shown
    assert logging.getLogger().level == logging.DEBUG


def test_invalid_settings_change_nothing() -> None:
    def read() -> BridgeSettings:
        raise ConfigurationError("bridge.max_series is 0; it must be at least 1")

    level = logging.getLogger().level
    with capture_logs() as lines:
        reload(STARTED, read, change, reloaded=RELOADED)

    assert [line["reason"] for line in lines] == ["bridge.max_series is 0; it must be at least 1"]
    assert logging.getLogger().level == level
