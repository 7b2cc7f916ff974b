"""Formats that a site adds: an installed distribution with an entry point of the group `kernelcast.bridge.formats`."""

import doctest
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import ValidationError
from tests.support.bridge.fleet import Site, page, samples

from kernelcast.bridge.inputs import TopicFormat, parsing
from kernelcast.bridge.settings import BridgeSettings
from kernelcast.runtime.settings.service import load
from kernelcast.wire.errors import ConfigurationError

MODULE = '''
from kernelcast.bridge.inputs import BatchRows, Parsing


class CsvLines(Parsing):
    """A name, a host and a value in each line."""

    def read(self, message: bytes, rows: BatchRows) -> None:
        for line in message.decode().splitlines():
            name, host, value = line.split(",")
            self.add(rows, name, {"host": host}, float(value))
'''


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A distribution as an installer leaves it: a module, and its metadata beside it."""
    (tmp_path / "site_formats.py").write_text(MODULE)
    metadata = tmp_path / "site_formats-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: site-formats\nVersion: 1.0\n")
    group = "[kernelcast.bridge.formats]\n"
    (metadata / "entry_points.txt").write_text(
        f"{group}csv = site_formats:CsvLines\ninflux = site_formats:CsvLines\nbroken = site_formats:Missing\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop("site_formats", None)


@pytest.mark.usefixtures("installed")
def test_messages_of_a_sites_own_format_become_series_and_wrong_ones_are_put_aside() -> None:
    site = Site(formats={"lines": TopicFormat(format="csv")})
    site.kafka.at_once = 10
    site.kafka.assign(site.intake, ("lines", 0))
    for body in (b"load,a,0.5\nload,b,2", b"load,c", b"load,d,\xff", b"load,a,0.75"):
        site.kafka.write("lines", 0, body, append_ms=1_000_000)
    site.read_all()
    found = {dict(labels)["host"]: value for (_, labels), value in samples(page(site.store)).items()}
    assert found == {"a": 0.75, "b": 2}
    assert len(site.shelf.messages) == 2
    assert "is no csv: ValueError" in str(site.shelf.messages[0][1])
    assert site.own("kernelcast_bridge_messages_by_format_total", topic="lines", format="csv") == 4


def test_the_example_of_the_base_class_runs() -> None:
    assert doctest.testmod(parsing) == (0, 5)


@pytest.mark.usefixtures("installed")
def test_a_site_cannot_replace_a_format_of_the_bridge() -> None:
    site = Site(formats={"lines": TopicFormat(format="influx")})
    site.kafka.at_once = 10
    site.kafka.assign(site.intake, ("lines", 0))
    site.kafka.write("lines", 0, b"load,host=a one=1", append_ms=1_000_000)
    site.read_all()
    assert "load_one" in page(site.store)


@pytest.mark.usefixtures("installed")
def test_a_name_that_is_no_format_is_refused_with_those_that_are_there(tmp_path: Path) -> None:
    file = tmp_path / "kernelcast.yaml"
    file.write_text("bridge: {formats: {lines: csvv}}\n")
    with pytest.raises(ConfigurationError, match=r"influx, json, broken, csv, or that of an entry point"):
        load("bridge", BridgeSettings, path=file, flags={}, environ={})


@pytest.mark.usefixtures("installed")
def test_an_entry_point_that_cannot_be_loaded_is_an_error_of_the_settings() -> None:
    with pytest.raises(ValidationError, match="its entry point cannot be loaded"):
        TopicFormat(format="broken")
