"""The files of deploy/, as systemd, promtool, openssl and the build see them."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from tests.service.built import COMPOSE
from tests.support.runtime.certificates import self_signed

from kernelcast.bridge.settings import BridgeSettings
from kernelcast.exporter.settings import ExporterSettings
from kernelcast.predictor.settings import PredictorSettings
from kernelcast.runtime.settings.service import ServiceSettings
from kernelcast.runtime.web.config import read_web_config

DEPLOY = Path(__file__).resolve().parents[3] / "deploy"
KERNELCAST = Path(sys.executable).with_name("kernelcast")
MODELS: dict[str, type[ServiceSettings]] = {
    "exporter": ExporterSettings,
    "bridge": BridgeSettings,
    "predictor": PredictorSettings,
}


def program(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"{name} is not on this machine")
    return path


def run(*command: object) -> "subprocess.CompletedProcess[str]":
    texts = [str(part) for part in command]
    return subprocess.run(texts, capture_output=True, text=True, timeout=60, check=False)


def unit(service: str) -> Path:
    return DEPLOY / "systemd" / f"kernelcast-{service}.service"


EXPOSURE = {"exporter": 2.1, "bridge": 1.5, "predictor": 1.5}
"""Most that `systemd-analyze security` may find, of 10."""


def copied(service: str, directory: Path) -> Path:
    """The unit and the target in a directory, with the command of this environment."""
    copy = directory / unit(service).name
    copy.write_text(unit(service).read_text().replace("/opt/kernelcast/bin/kernelcast", str(KERNELCAST)))
    shutil.copy(DEPLOY / "systemd" / "kernelcast.target", directory)
    return copy


def exposure_of(copy: Path) -> float:
    judged = run(program("systemd-analyze"), "security", "--offline=true", "--no-pager", copy)
    return float(re.findall(r"exposure level for .*: ([0-9.]+)", judged.stdout)[0])


@pytest.mark.parametrize("service", MODELS)
def test_systemd_takes_the_unit_and_finds_it_well_confined(service: str, tmp_path: Path) -> None:
    analyze = program("systemd-analyze")
    copy = copied(service, tmp_path)
    verified = run(analyze, "verify", copy, tmp_path / "kernelcast.target")
    assert (verified.returncode, verified.stderr) == (0, "")
    assert exposure_of(copy) <= EXPOSURE[service]


def test_systemd_takes_the_files_of_the_preserved_socket(tmp_path: Path) -> None:
    copy = copied("exporter", tmp_path)
    folder = tmp_path / f"{copy.name}.d"
    folder.mkdir()
    shutil.copy(DEPLOY / "systemd" / "preserved-socket.conf", folder)
    verified = run(program("systemd-analyze"), "verify", copy)
    assert (verified.returncode, verified.stderr) == (0, "")
    root = tmp_path / "root"
    (root / "etc").mkdir(parents=True)
    users = run(program("systemd-sysusers"), f"--root={root}", DEPLOY / "systemd" / "kernelcast.sysusers.conf")
    assert users.returncode == 0, users.stderr
    made = run(
        program("systemd-tmpfiles"), "--create", f"--root={root}", DEPLOY / "systemd" / "kernelcast.tmpfiles.conf"
    )
    assert made.returncode == 0, made.stderr
    directory = root / "run" / "kernelcast"
    assert directory.stat().st_mode & 0o777 == 0o755
    (user,) = [line for line in (root / "etc/passwd").read_text().splitlines() if line.startswith("kernelcast:")]
    assert directory.stat().st_uid == int(user.split(":")[2])


def test_hadolint_has_no_finding() -> None:
    done = run(Path(sys.executable).with_name("hadolint"), DEPLOY / "docker" / "Dockerfile")
    assert (done.returncode, done.stdout) == (0, "")


def test_the_compose_file_is_one_by_its_specification() -> None:
    checker = Path(sys.executable).with_name("check-jsonschema")
    done = run(checker, "--builtin-schema", "vendor.compose-spec", DEPLOY / "compose" / "compose.yaml")
    assert done.returncode == 0, done.stdout


def test_docker_composes_own_library_reads_the_project() -> None:
    """`docker compose config` uses compose-go; it checks references and dependencies, not only the form."""
    folder = DEPLOY / "compose"
    done = subprocess.run(
        [COMPOSE.found(), "compose.yaml"], cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    project = yaml.safe_load(done.stdout)
    declared = yaml.safe_load((folder / "compose.yaml").read_text())["services"]
    assert set(project["services"]) == {name for name, one in declared.items() if "profiles" not in one}


def test_a_service_that_depends_on_none_is_found(tmp_path: Path) -> None:
    path = tmp_path / "compose.yaml"
    path.write_text("services: {a: {image: a, depends_on: [b]}}")
    done = run(COMPOSE.found(), path)
    assert done.returncode == 1
    assert "depends on undefined service" in done.stderr


@pytest.fixture
def web_config(tmp_path: Path) -> Path:
    """The example beside a certificate of its own."""
    certificate, key = self_signed(tmp_path, "server")
    assert (certificate.name, key.name) == ("server.crt", "server.key")
    return Path(shutil.copy(DEPLOY / "web-config.example.yml", tmp_path))


def test_promtool_takes_the_web_configuration(web_config: Path) -> None:
    done = run(program("promtool"), "check", "web-config", web_config)
    assert done.returncode == 0, done.stderr


def test_our_daemons_take_the_web_configuration(web_config: Path) -> None:
    config = read_web_config(web_config)
    assert config.tls_server_config is not None
    assert set(config.basic_auth_users) == {"prometheus"}


def test_the_images_files_are_enough_to_build_the_wheel(tmp_path: Path) -> None:
    text = (DEPLOY / "docker" / "Dockerfile").read_text()
    for line in re.findall(r"^COPY (?!--from)(.+)$", text, re.MULTILINE):
        for name in line.split()[:-1]:
            source, target = DEPLOY.parent / name, tmp_path / name
            target.parent.mkdir(exist_ok=True)
            shutil.copytree(source, target) if source.is_dir() else shutil.copy(source, target)
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target", "wheel"],
        cwd=tmp_path, env={"PATH": "/nowhere"}, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert [path.name for path in (tmp_path / "dist").iterdir()] == ["kernelcast-0.1.0-py3-none-any.whl"]
