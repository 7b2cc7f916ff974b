"""The wheel that users install, in an environment without other packages."""

import os
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from email import message_from_bytes
from email.message import Message
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from tests.support.packaging import ROOTS, build_package
from trove_classifiers import classifiers

from kernelcast.cli.revision import commit_of_checkout
from kernelcast.probe.cupti.build import LIBRARY_NAME, compiler
from release.addresses import repository

REPOSITORY = Path(__file__).resolve().parents[3]
SERVED = (".js", ".css", ".html", ".txt")
"""Files that the bridge serves to a browser, and the licence of one of them."""
SERVICES = {"exporter", "replay", "bridge", "predictor", "grafana"}
SEARCHES = {"optuna", "kernel-tuner"}
"""Extras with other packages' searches, which only a named search uses; `all` has none of them."""
EXTRAS = {*SERVICES, *SEARCHES, "runtime", "decoder", "grpc", "cuda12", "cuda13", "cupti", "cupti12", "all"}
COMMANDS = {"exporter", "replay", "simulate", "bridge", "predictor", "backtest", "grafana", "rules", "scrape", "demo"}
FILES = {"grafana": "kernelcast/grafana/files", "deploy": "kernelcast/cli/files"}
NEEDS_A_GPU = ("cupy", "nvidia-cuda-cupti")
DECODER = f"kernelcast/probe/cupti/{LIBRARY_NAME}"
COMMIT = "kernelcast/cli/commit.txt"

NEW_MODULES = """
import sys
before = set(sys.modules)
import kernelcast.probe
kernelcast.probe.start, kernelcast.probe.region
names = {name.partition(".")[0] for name in set(sys.modules) - before}
print(*sorted(names - set(sys.stdlib_module_names)))
"""
"""Site-packages' own start-up files may have imported something before us: only what we bring counts."""

PROGRAM = """
import time
import kernelcast.probe

kernelcast.probe.start(program="train", source="simulated")
block = kernelcast.probe.tunable("block_size", [64, 128], 64)
for _ in range(15):
    kernelcast.probe.observe("conv", 1_000, block=(block.value, 1, 1))
    kernelcast.probe.step()
    time.sleep(0.1)
print("done")
"""
"""Longer than the probe's interval of a second, so that it tries to connect there and again at the end."""


@pytest.fixture(scope="module")
def names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


@pytest.fixture(scope="module")
def bare(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` of an environment that has the wheel and nothing else."""
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder, with_pip=False, symlinks=True)
    pip = [sys.executable, "-m", "pip", "--python", folder / "bin" / "python", "install", "--no-compile", "--quiet"]
    run(*pip, "--disable-pip-version-check", "--no-index", wheel, check=True)
    return folder / "bin"


ARMED = "import sys; print('kernelcast.probe.activation.context_waiter' in sys.modules)"


def run(
    *command: object, check: bool = False, socket: str = "/nowhere/probe.sock", **environ: str
) -> "subprocess.CompletedProcess[str]":
    """Run outside the checkout, without the test's environment, so that only installed packages can be found."""
    return subprocess.run(
        [str(part) for part in command],
        cwd="/",
        env={"KERNELCAST_SOCKET": socket, "PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", **environ},
        capture_output=True,
        text=True,
        timeout=60,
        check=check,
    )


def metadata(wheel: Path, name: str) -> bytes:
    with zipfile.ZipFile(wheel) as archive:
        (path,) = [path for path in archive.namelist() if path.endswith(f".dist-info/{name}")]
        return archive.read(path)


def described(wheel: Path) -> Message:
    return message_from_bytes(metadata(wheel, "METADATA"))


def requirements(wheel: Path) -> dict[str, set[str]]:
    """Names of the packages that each extra brings; those without condition under the empty name."""
    found: dict[str, set[str]] = {extra: set() for extra in described(wheel).get_all("Provides-Extra", [])}
    for line in described(wheel).get_all("Requires-Dist", []):
        requirement, _, condition = line.partition(";")
        extra = condition.partition("extra == ")[2].strip("'\" ")
        found.setdefault(extra, set()).add(requirement.partition(">=")[0].strip())
    return found


def test_the_wheel_has_every_source_file_of_the_five_roots_and_nothing_else(names: set[str]) -> None:
    expected = {
        str(path.relative_to(REPOSITORY / root))
        for root in ROOTS
        for path in (REPOSITORY / root / "kernelcast").rglob("*")
        if path.is_file() and path.suffix in (".py", ".typed", ".json", *SERVED)
    }
    expected |= {
        f"{target}/{path.relative_to(REPOSITORY / folder)}"
        for folder, target in FILES.items()
        for path in (REPOSITORY / folder).rglob("*")
        if path.is_file() and path.relative_to(REPOSITORY / folder).parts[0] != "kernelcast"
    }
    expected = {name for name in expected if not name.startswith("kernelcast/grafana/files/rules/tests/")}
    expected |= {"kernelcast/grafana/files/runbooks.md"}
    expected = {name for name in expected if not name.endswith("/document.py")}  # they write docs/ in a checkout
    expected |= {COMMIT} if commit_of_checkout(REPOSITORY) else set()
    decoder = {DECODER} if compiler() else set()
    own = {name for name in names if ".dist-info/" not in name and "/__pycache__/" not in name}
    assert own == expected | decoder | {"kernelcast_probe.pth"}


def test_files_of_the_wheel_are_those_of_the_checkout_byte_by_byte(wheel: Path) -> None:
    sources = {f"{target}/": folder for target, folder in zip(FILES.values(), FILES, strict=True)}
    with zipfile.ZipFile(wheel) as archive:
        compared = 0
        for name in archive.namelist():
            below = next((target for target in sources if name.startswith(target)), "")
            folders = [sources[below]] if below else ROOTS
            paths = [REPOSITORY / folder / name.removeprefix(below) for folder in folders]
            for path in filter(Path.is_file, paths):
                assert archive.read(name) == path.read_bytes(), name
                compared += 1
    assert compared > 800


def test_the_decoder_is_compiled_for_the_platform_and_every_python(wheel: Path, bare: Path) -> None:
    if not compiler():
        pytest.skip("no C compiler on this machine; install gcc or clang")
    described_wheel = message_from_bytes(metadata(wheel, "WHEEL"))
    assert described_wheel["Root-Is-Purelib"] == "false"
    assert described_wheel["Tag"].startswith("py3-none-linux_")
    done = run(bare / "python", "-c", "from kernelcast.probe.cupti.native import ActivityDecoder; ActivityDecoder()")
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of a machine without git and a compiler."""
    return build_package(tmp_path_factory.mktemp("plain") / "wheel", {"PATH": "/nowhere"})


def test_without_a_compiler_the_wheel_is_a_pure_one(plain: Path) -> None:
    assert plain.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(plain) as archive:
        assert DECODER not in archive.namelist()
        assert [name for name in archive.namelist() if "__pycache__" in name] == []


def test_the_source_distribution_needs_no_compiler_and_holds_all_sources_of_a_wheel(
    tmp_path: Path,
) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    git = shutil.which("git")
    if git is not None:
        (programs / "git").symlink_to(git)
    path = build_package(tmp_path / "built", {"PATH": str(programs)}, target="sdist")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    committed = {"hatch_build.py", "CHANGELOG.md", "Makefile", "deploy/kernelcast.yaml", "grafana/rules/alerts.yaml"}
    assert committed | {f"exporter/kernelcast/probe/cupti/native/{name}" for name in ("clock.c", "clock.h")} <= names
    assert ("core/kernelcast/cli/commit.txt" in names) is bool(commit_of_checkout(REPOSITORY))
    assert [name for name in names if name.endswith((".so", ".nbi", ".nbc", ".pyc"))] == []


def test_every_sub_package_says_that_it_is_typed(names: set[str]) -> None:
    packages = {name.split("/")[1] for name in names if name.startswith("kernelcast/")}
    assert {
        "wire",
        "tuning",
        "columnar",
        "runtime",
        "cli",
        "probe",
        "exporter",
        "bridge",
        "predictor",
        "grafana",
    } <= packages
    assert {f"kernelcast/{package}/py.typed" for package in packages} <= names


def test_nothing_hides_the_other_roots_of_the_namespace(names: set[str]) -> None:
    assert "kernelcast/__init__.py" not in names


def test_the_licence_travels_with_the_code(wheel: Path) -> None:
    assert described(wheel)["License-Expression"] == "Apache-2.0"
    assert b"Apache License" in metadata(wheel, "licenses/LICENSE")


def test_a_bare_install_has_no_dependencies(wheel: Path) -> None:
    assert "" not in requirements(wheel)


def test_the_extras_are_the_promised_ones_and_all_is_everything_that_needs_no_gpu(wheel: Path) -> None:
    extras = requirements(wheel)
    assert set(extras) == EXTRAS
    without_gpu = {
        name: found for name, found in extras.items() if not any(one.startswith(NEEDS_A_GPU) for one in found)
    }
    assert set(extras) - set(without_gpu) == {"cuda12", "cuda13", "cupti", "cupti12"}
    assert extras["all"] == set().union(*(found for name, found in without_gpu.items() if name not in SEARCHES))


@pytest.mark.parametrize(
    ("extra", "absent"),
    [
        ("exporter", {"grpcio", "numba", "numpy", "opentelemetry-proto", "protobuf"}),
        ("replay", {"numba", "opentelemetry-proto", "protobuf"}),
    ],
)
def test_a_process_that_only_encodes_imports_no_compiler(wheel: Path, extra: str, absent: set[str]) -> None:
    names = requirements(wheel)[extra]
    assert "confluent-kafka" in names
    assert names & absent == set()


@pytest.mark.parametrize(
    ("absent", "modules"),
    [
        (
            "numpy numba llvmlite opentelemetry google grpc pandas httpx",
            "exporter.command exporter.assembly exporter.daemon",
        ),
        ("numba llvmlite opentelemetry google pandas httpx", "exporter.replay.command exporter.simulate.command"),
        (
            "numpy numba llvmlite opentelemetry google pandas httpx",
            "cli.topics cli.doctor.command",
        ),
    ],
)
def test_commands_import_only_packages_of_their_extra(absent: str, modules: str) -> None:
    program = f"import importlib, sys; sys.modules |= dict.fromkeys({absent.split()!r}); " + "; ".join(
        f"importlib.import_module('kernelcast.{name}')" for name in modules.split()
    )
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(str(REPOSITORY / root) for root in ROOTS)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, env=environ)
    assert done.returncode == 0, done.stderr


def test_every_entry_point_leads_somewhere(wheel: Path) -> None:
    groups: dict[str, dict[str, EntryPoint]] = {}
    for line in filter(None, metadata(wheel, "entry_points.txt").decode().splitlines()):
        if line.startswith("["):
            current = groups.setdefault(line.strip("[]"), {})
        else:
            name, _, value = line.partition(" = ")
            current[name] = EntryPoint(name, value, "")
    assert set(groups["console_scripts"]) == {"kernelcast"}
    assert set(groups["kernelcast.commands"]) == COMMANDS
    for point in (point for group in groups.values() for point in group.values()):
        assert callable(point.load()), point


def test_the_probe_imports_the_standard_library_and_itself(bare: Path) -> None:
    done = run(bare / "python", "-c", NEW_MODULES)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["kernelcast"]


def test_a_program_without_an_exporter_runs_to_its_end_and_warns_once(bare: Path, tmp_path: Path) -> None:
    done = run(bare / "python", "-c", PROGRAM, socket=str(tmp_path / "probe.sock"))
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert f"found no exporter at {tmp_path / 'probe.sock'}" in done.stderr
    assert "start `kernelcast exporter` on this node" in done.stderr


def test_the_bare_command_says_how_to_install_the_rest(bare: Path) -> None:
    done = run(bare / "kernelcast")
    assert done.returncode == 2
    assert "Usage: kernelcast COMMAND" in done.stdout
    assert "only the probe is installed" in done.stderr
    assert "pip install 'kernelcast[all]'" in done.stderr


@pytest.mark.parametrize(
    ("command", "extra"),
    [
        ("exporter", "exporter"),
        ("simulate", "replay"),
        ("replay", "replay"),
        ("bridge", "bridge"),
        ("predictor", "predictor"),
        ("grafana", "grafana"),
        ("demo", "all"),
        ("topics", "runtime"),
        ("config", "runtime"),
    ],
)
def test_a_command_without_its_extra_names_it(bare: Path, command: str, extra: str) -> None:
    asked = run(bare / "kernelcast", command, "--help")
    assert asked.returncode == 0
    assert f"pip install 'kernelcast[{extra}]'" in asked.stdout
    done = run(bare / "kernelcast", command)
    assert done.returncode == 2
    assert f"pip install 'kernelcast[{extra}]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_bare_command_knows_its_version_and_commit(bare: Path, wheel: Path) -> None:
    done = run(bare / "kernelcast", "--version")
    commit = commit_of_checkout(REPOSITORY)
    built_from = f" (commit {commit})" if commit else ""
    assert done.stdout == f"kernelcast 0.1.0{built_from}\n"
    assert described(wheel)["Version"] == "0.1.0"


def test_the_classifiers_are_known_to_the_package_index(wheel: Path) -> None:
    found = described(wheel).get_all("Classifier", [])
    assert "Programming Language :: Python :: 3.13" in found
    assert set(found) <= set(classifiers)


def test_the_package_has_no_address_before_there_is_one(wheel: Path) -> None:
    assert repository() == ""
    assert described(wheel).get_all("Project-URL") is None
    assert metadata(wheel, "METADATA").partition(b"\n\n")[2] == (REPOSITORY / "README.md").read_bytes()


def test_one_variable_or_one_command_switches_the_probe_on_where_nothing_else_is_installed(bare: Path) -> None:
    python = bare / "python"
    assert run(python, "-c", ARMED).stdout == "False\n"
    assert run(python, "-c", ARMED, KERNELCAST_PROBE="1").stdout == "True\n"
    for command in ((bare / "kernelcast", "probe"), (python, "-m", "kernelcast.probe")):
        ended = run(*command, "--program", "train", "--", python, "-c", ARMED)
        assert (ended.stdout, ended.stderr, ended.returncode) == ("True\n", "", 0)
