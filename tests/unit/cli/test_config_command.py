"""`kernelcast config`: the examples of a deployment."""

from pathlib import Path

import pytest

from kernelcast.cli import app

DEPLOY = Path(__file__).resolve().parents[3] / "deploy"


def call(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = app.run(["config", *arguments])
    output = capsys.readouterr()
    return code, output.out, output.err


@pytest.mark.parametrize("name", ["kernelcast.yaml", "counters.csv", "systemd/kernelcast-bridge.service"])
def test_an_example_is_printed_as_it_is(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = () if name == "kernelcast.yaml" else (name,)
    assert call(capsys, "example", *arguments) == (0, (DEPLOY / name).read_text(), "")


def test_the_minimal_settings_are_ten_lines(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = call(capsys, "example", "--minimal")
    assert (code, err) == (0, "")
    assert len(out.splitlines()) == 10


@pytest.mark.parametrize("name", ["bridge", "../README.md", str(DEPLOY / "counters.csv")])
def test_anything_else_is_refused_with_the_names_of_the_examples(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = call(capsys, "example", name)
    assert (code, out) == (2, "")
    assert err.startswith(
        f"kernelcast: {name} is not an example; the examples are collector/builder.yaml, collector/delta.yaml, "
    )


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    code, _, err = call(capsys, "files", "--output", str(tmp_path / "file" / "below"))
    assert code == 2
    assert err.count("\n") == 1
    assert "cannot be written" in err
