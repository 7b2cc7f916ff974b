"""Every promise of the README, kept by the built wheel where there is no checkout.

With KERNELCAST_FULL_INSTALL=1 pip installs `kernelcast[all]` with its locked dependencies from a package index, as a
user does; without it the dependencies of this environment are used.
"""

import json
import os
import re
from pathlib import Path

import pytest
from tests.service.installed_wheel import FULL_INSTALL, REPOSITORY, InstalledWheel, install

pytestmark = [pytest.mark.service, pytest.mark.timeout(1200 if FULL_INSTALL else 300)]

README = (REPOSITORY / "README.md").read_text()
DEPLOY = REPOSITORY / "deploy"
SERVICES = ("exporter", "bridge", "predictor")
MODULES = ("wire", "tuning", "columnar", "runtime", "cli", "probe", "exporter", "bridge", "predictor", "grafana")
STUBS = """
batches = [[1, 2], [3, 4], [5, 6]]
def train(batch, block_size):
    assert block_size == 64
"""


def blocks(language: str) -> list[str]:
    """The README's code blocks in a language, without the indentation of the list that holds them."""
    found = re.findall(rf"^( *)```{language}\n(.*?)^ *```", README, re.MULTILINE | re.DOTALL)
    return [re.sub(f"^{indent}", "", text, flags=re.MULTILINE) for indent, text in found]


def commands() -> list[str]:
    """Commands that the README names, such as `topics apply`."""
    named = re.findall(r"(?:`kernelcast|make) ([a-z]+(?: [a-z][a-z-]+)?)", README)
    return sorted({"replay", "simulate", *named} - {"test"})


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> InstalledWheel:
    return install(wheel, tmp_path_factory.mktemp("installed"))


def files_below(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_nothing_of_the_checkout_is_imported(installed: InstalledWheel) -> None:
    program = f"import importlib\nfor name in {MODULES}: print(*importlib.import_module('kernelcast.' + name).__path__)"
    done = installed.run(installed.python, "-c", program)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [str(installed.packages / "kernelcast" / name) for name in MODULES]


def test_nothing_is_compiled_where_the_wheel_brings_machine_code(installed: InstalledWheel) -> None:
    done = installed.kernelcast("compile", "--check", timeout_seconds=200)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_command_of_the_readme_is_installed(installed: InstalledWheel) -> None:
    assert {"demo", "exporter", "bridge", "predictor", "probe", "doctor", "topics apply"} <= set(commands())
    for command, (code, _, errors) in zip(
        commands(), installed.in_one_process(*([*command.split(), "--help"] for command in commands())), strict=True
    ):
        assert code == 0, f"{command}: {errors}"


def test_every_daemon_takes_the_readmes_settings_and_the_example(installed: InstalledWheel, tmp_path: Path) -> None:
    (settings,) = blocks("yaml")
    readme, example = tmp_path / "readme.yaml", tmp_path / "example.yaml"
    readme.write_text(settings)
    printed = installed.kernelcast("config", "example")
    assert (printed.returncode, printed.stdout) == (0, (DEPLOY / "kernelcast.yaml").read_text()), printed.stderr
    example.write_text(printed.stdout)
    calls = [[service, "--check-config", "--config", path] for service in SERVICES for path in (readme, example)]
    valid = (0, "configuration is valid\n", "")
    assert installed.in_one_process(*calls, KERNELCAST_KAFKA__PROPERTIES__SASL_PASSWORD="secret") == [valid] * 6


def test_the_readmes_program_runs_with_the_probe(installed: InstalledWheel, tmp_path: Path) -> None:
    (program,) = blocks("python")
    path = tmp_path / "train.py"
    path.write_text(f"{STUBS}{program}print(block.value)\n")
    done = installed.kernelcast("probe", "--", installed.python, path)
    assert (done.returncode, done.stdout) == (0, "64\n"), done.stderr


def test_the_readmes_dashboards_and_rules_are_written_without_a_checkout(
    installed: InstalledWheel, tmp_path: Path
) -> None:
    done = installed.kernelcast("grafana", "files", "--output", tmp_path / "grafana")
    assert done.returncode == 0, done.stderr
    named = re.findall(r"`(grafana/[^`]+)`", README)
    assert len(named) >= 3, named
    for pattern in named:
        assert list(tmp_path.glob(pattern)), f"{pattern} is not among {done.stdout}"
    expected = files_below(REPOSITORY / "grafana")
    written = files_below(tmp_path / "grafana")
    assert written.pop("runbooks.md") == (REPOSITORY / "docs" / "runbooks.md").read_bytes()
    left_out = ("kernelcast/", "rules/tests/", "dashboards/.lint")
    assert written == {name: content for name, content in expected.items() if not name.startswith(left_out)}


def test_the_deployment_files_are_written_without_a_checkout(installed: InstalledWheel, tmp_path: Path) -> None:
    assert "[deploy/](deploy/)" in README
    done = installed.kernelcast("config", "files", "--output", tmp_path)
    assert done.returncode == 0, done.stderr
    assert files_below(tmp_path) == files_below(DEPLOY)


@pytest.mark.nightly
def test_the_demo_runs_without_a_checkout(installed: InstalledWheel, tmp_path: Path) -> None:
    summary = tmp_path / "summary.json"
    options = ("--source", "simulate", "--no-servers", "--summary", summary, "--directory", tmp_path / "demo")
    done = installed.kernelcast("demo", "--duration", "5", *options, timeout_seconds=900 if FULL_INSTALL else 240)
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(summary.read_text())
    assert result["kernels"]["launches"] > 0
    assert set(result["processes"].values()) == {0}, result["processes"]
    assert os.fspath(REPOSITORY) not in done.stdout
