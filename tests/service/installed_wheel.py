"""An environment that has the built wheel, the packages of this one behind it, and nothing of the checkout."""

import json
import os
import site
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]

FULL_INSTALL = bool(os.environ.get("KERNELCAST_FULL_INSTALL"))
"""Whether pip installs the dependencies from a package index, as `make nightly` has it do."""
SEVERAL = """
import contextlib, io, json, sys
from kernelcast.cli.app import run

def call(arguments):
    output, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
        try:
            code = run(arguments)
        except SystemExit as end:
            code = end.code
    return code, output.getvalue(), errors.getvalue()

print(json.dumps([call(arguments) for arguments in json.loads(sys.argv[1])]))
"""


@dataclass(frozen=True)
class InstalledWheel:
    """The environment's folder."""

    folder: Path

    @property
    def python(self) -> Path:
        """The environment's interpreter."""
        return self.folder / "bin" / "python"

    @property
    def packages(self) -> Path:
        """Its site-packages."""
        return Path(sysconfig.get_path("purelib", vars={"base": str(self.folder)}))

    def run(self, *command: object, timeout_seconds: float = 60, **environ: str) -> "subprocess.CompletedProcess[str]":
        """Run a program of the environment from its own folder, without this process's variables."""
        path = os.pathsep.join((str(self.folder / "bin"), os.environ["PATH"]))
        return subprocess.run(
            [str(part) for part in command],
            cwd=self.folder,
            env={"PATH": path, "HOME": str(self.folder), "LC_ALL": "C.UTF-8", **environ},
            capture_output=True,
            text=True,
            timeout=timeout_seconds,
            check=False,
        )

    def kernelcast(self, *arguments: object, timeout_seconds: float = 60) -> "subprocess.CompletedProcess[str]":
        """Run the command that the wheel installs."""
        return self.run(self.folder / "bin" / "kernelcast", *arguments, timeout_seconds=timeout_seconds)

    def in_one_process(self, *calls: Sequence[object], **environ: str) -> list[tuple[int, str, str]]:
        """Run commands of `kernelcast` one after another; exit code, output and errors of each."""
        arguments = json.dumps([[str(part) for part in call] for call in calls])
        done = self.run(self.python, "-c", SEVERAL, arguments, timeout_seconds=120, **environ)
        assert done.returncode == 0, done.stderr
        return [(code, output, errors) for code, output, errors in json.loads(done.stdout)]


def install(wheel: Path, folder: Path) -> InstalledWheel:
    """Make the environment; without a network unless KERNELCAST_FULL_INSTALL is set."""
    venv.create(folder, with_pip=False, symlinks=True)
    made = InstalledWheel(folder)
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        str(made.python),
        "install",
        "--quiet",
        "--disable-pip-version-check",
    ]
    if FULL_INSTALL:
        subprocess.run([*pip, "--constraint", str(_constraints(folder)), f"{wheel}[all]"], check=True)
        return made
    subprocess.run([*pip, "--no-index", "--no-deps", str(wheel)], check=True)
    # A line of a `.pth` file adds a folder to the path, but the `.pth` files in that folder are not read: the checkout
    # that is installed there in place stays off the path.
    (made.packages / "locked_dependencies.pth").write_text("".join(f"{path}\n" for path in site.getsitepackages()))
    return made


def _constraints(folder: Path) -> Path:
    """The locked versions without their hashes, which pip would want of our wheel, too."""
    lines = (REPOSITORY / "requirements.lock").read_text().splitlines()
    path = folder / "constraints.txt"
    path.write_text("\n".join(line.rstrip(" \\") for line in lines if "--hash=" not in line) + "\n")
    return path
