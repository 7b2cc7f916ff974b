"""SIGHUP changes some settings of a running daemon."""

import pytest

from kernelcast.exporter.assembly import run
from kernelcast.exporter.reloading import RELOADED
from kernelcast.exporter.settings import ExporterSettings
from kernelcast.runtime.lifecycle import Shutdown
from kernelcast.runtime.reloading import restart_needed
from kernelcast.runtime.settings.service import load
from kernelcast.wire.errors import ConfigurationError


def settings(**flags: object) -> ExporterSettings:
    return load("exporter", ExporterSettings, path=None, flags=flags, environ={})


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"interval_seconds": 2, "kernels": 7, "nvml": "off"}, ("kernels", "nvml")),
        ({"interval_seconds": 3, "log": {"level": "debug"}}, ()),
        ({"nvml_timeout_seconds": 1, "kubernetes": "off", "device_metrics": "on"}, ()),
        ({"kubernetes_images": True}, ()),
    ],
)
def test_what_changes_at_the_next_start_only_is_named(changed: dict[str, object], named: tuple[str, ...]) -> None:
    assert restart_needed(settings(), settings(**changed), reloaded=RELOADED) == named


def test_properties_that_only_a_consumer_refuses_end_the_start() -> None:
    refused = settings(kafka={"properties": {"max.poll.interval.ms": "5000"}})
    with pytest.raises(ConfigurationError, match=r"session\.timeout\.ms"):
        run(refused, Shutdown(), reload=settings)
