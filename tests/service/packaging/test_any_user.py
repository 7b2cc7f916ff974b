"""The exporter as OpenShift runs an image: a user without a name in group 0, and folders as the Dockerfile makes."""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.service.servers import answers, wait_for
from tests.support.ports import free_ports
from tests.support.waiting import LONGEST_SECONDS

USER = 1_000_790_000
"""From the range that OpenShift gives a namespace."""
# In the image every user may read Python and the packages; here they may lie in a home, so the user may read all files.
AS_ANY_USER = (
    *("setpriv", f"--reuid={USER}", "--regid=0", "--clear-groups"),
    *("--inh-caps=-all,+dac_read_search", "--ambient-caps=-all,+dac_read_search", "--no-new-privs"),
)
DOCKERFILE = Path(__file__).resolve().parents[3] / "deploy" / "docker" / "Dockerfile"


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with the owner, group and mode of those in the image."""
    if subprocess.run([*AS_ANY_USER, sys.executable, "-c", ""], capture_output=True, check=False).returncode:
        pytest.skip("no program can be started as another user here: that takes root and util-linux's setpriv")
    (found,) = re.findall(
        r"^RUN install -d -o (\d+) -g (\d+) -m (\d+) /run/kernelcast", DOCKERFILE.read_text(), re.MULTILINE
    )
    owner, group, mode = int(found[0]), int(found[1]), int(found[2], 8)
    with tempfile.TemporaryDirectory() as name:
        path = Path(name)
        os.chown(path, owner, group)
        path.chmod(mode)
        yield path


def test_a_user_without_a_name_in_group_0_runs_the_exporter(folder: Path) -> None:
    (port,) = free_ports(1)
    command = [*AS_ANY_USER, sys.executable, "-m", "kernelcast.cli", "exporter", "--kafka", "off", "--nvml", "off"]
    command += ["--web.listen-address", f"127.0.0.1:{port}"]
    environ = {
        "HOME": "/",
        "PATH": os.environ["PATH"],
        "KERNELCAST_EXPORTER__SOCKET_PATH": str(folder / "probe.sock"),
        "KERNELCAST_EXPORTER__STATE_DIRECTORY": str(folder / "state"),
    }
    with subprocess.Popen(command, umask=0o022, cwd="/", env=environ, stderr=subprocess.PIPE, text=True) as process:
        try:
            wait_for("the exporter is ready or has ended", lambda: answers(url(port)) or process.poll() is not None)
            assert process.poll() is None
            assert (folder / "probe.sock").stat().st_uid == USER
            assert (folder / "state").stat().st_uid == USER
        finally:
            process.terminate()
            _, said = process.communicate(timeout=LONGEST_SECONDS)
    assert process.returncode == 0, said


def url(port: int) -> str:
    return f"http://127.0.0.1:{port}/-/ready"
