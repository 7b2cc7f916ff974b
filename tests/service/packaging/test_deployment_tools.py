"""The files of deploy/, as systemd, promtool, openssl and the build see them."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
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


@pytest.mark.parametrize("service", MODELS)
def test_systemd_takes_the_unit_and_finds_it_well_confined(service: str, tmp_path: Path) -> None:
    analyze = program("systemd-analyze")
    copy = tmp_path / unit(service).name
    copy.write_text(unit(service).read_text().replace("/opt/kernelcast/bin/kernelcast", str(KERNELCAST)))
    verified = run(analyze, "verify", copy)
    assert (verified.returncode, verified.stderr) == (0, "")
    judged = run(analyze, "security", "--offline=true", "--threshold=25", copy)
    assert judged.returncode == 0, judged.stdout


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
            shutil.copytree(source, target) if source.is_dir() else shutil.copy(source, target)
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target", "wheel"],
        cwd=tmp_path, env={"PATH": "/nowhere"}, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert [path.name for path in (tmp_path / "dist").iterdir()] == ["kernelcast-0.1.0-py3-none-any.whl"]
