"""What the demo refuses before it starts anything: nobody should wait a minute to read about a typing mistake."""

from pathlib import Path

import pytest

from kernelcast.cli.app import run


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--duration", "0"),
        ("--duration", "inf"),
        ("--duration", "nan"),
        ("--kernels", "many"),
        ("--kernels", "0"),
        ("--speed", "fast"),
        ("--speed", "0"),
        ("--speed", "nan"),
        ("--source", "gpu"),
    ],
)
def test_a_value_that_makes_no_sense_is_named_with_its_option(
    option: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["demo", option, value]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"kernelcast: {option} is ")
    assert said.count("\n") == 1


@pytest.mark.parametrize("option", ["--directory", "--summary"])
def test_a_place_that_cannot_be_written_is_said_at_once(
    option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    place = tmp_path / "file" / "below"
    assert run(["demo", "--source", "simulate", option, str(place)]) == 2
    assert f"{option} {place} cannot be written" in capsys.readouterr().err
