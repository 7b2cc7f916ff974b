"""Builds and checks the files of a release: a source distribution, and a wheel for each platform.

    python -m release.wheels [--output dist] [--python python3.12 --python python3.13]

The wheels are built from the unpacked source distribution, as an installer would build them. The compiler, auditwheel
and hatchling are the dependency group `release`; they are installed in an environment of their own below `build/`, so a
package index is needed the first time.

The wheel for this machine's architecture brings machine code of the bridge and the predictor for every `--python`, made
with the locked packages in an environment of each. With another Python or another numba, the first start compiles.
"""

import argparse
import os
import platform
import re
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import venv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from release import addresses, changelog

REPOSITORY: Final = Path(__file__).resolve().parents[2]
TOOLS: Final = REPOSITORY / "build" / "release-tools"
LOCK: Final = REPOSITORY / "requirements-run.lock"
PURE: Final = "pure"
PLATFORMS: Final = ("x86_64", "aarch64")
VARIABLE: Final = "KERNELCAST_WHEEL"
MACHINE_CODE_VARIABLE: Final = "KERNELCAST_MACHINE_CODE"
"""See `hatch_build.py`, which reads both."""
# auditwheel's sentence about the oldest platform that the wheel runs on.
_CONSISTENT: Final = re.compile(r'following platform tag:\s*"([^"]+)"')


class ReleaseError(Exception):
    """A step failed; the message names it and holds its output."""


def main() -> None:
    """Build, judge, and print a line for each file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=REPOSITORY / "dist", help="Where the files go.")
    parser.add_argument(
        "--python", action="append", help="An interpreter to make machine code for; may be repeated. Default: this one."
    )
    arguments = parser.parse_args()
    output: Path = arguments.output.resolve()
    output.mkdir(parents=True, exist_ok=True)
    for reason in unfinished():
        sys.stderr.write(f"not to be published: {reason}\n")
    try:
        python = tools()
        for path in build(python, output, arguments.python or [sys.executable]):
            sys.stdout.write(f"{path.name}  {path.stat().st_size:,} bytes  {judge(python, path)}\n")
    except ReleaseError as error:
        sys.exit(str(error))


def unfinished() -> list[str]:
    """Reasons why the files built now are no release yet."""
    reasons = []
    changes = (REPOSITORY / "CHANGELOG.md").read_text(encoding="utf-8")
    if changelog.release_date(changes, changelog.version()) == changelog.UNRELEASED:
        reasons.append(f"CHANGELOG.md has no date for {changelog.version()}")
    if not addresses.repository():
        reasons.append("pyproject.toml has no repository address, so the README's links lead nowhere")
    if _run(["git", "status", "--porcelain"]):
        reasons.append("the checkout has changes that are not committed")
    return reasons


def tools() -> Path:
    """The interpreter of the environment that has the release's tools, installed if needed."""
    wanted = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["dependency-groups"]["release"]
    python = TOOLS / "bin" / "python"
    installed = TOOLS / "installed.txt"
    if not installed.exists() or installed.read_text().splitlines() != wanted:
        venv.create(TOOLS, with_pip=True, symlinks=True, clear=True)
        _run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *wanted])
        installed.write_text("\n".join(wanted) + "\n")
    return python


def build(python: Path, output: Path, interpreters: Sequence[str]) -> list[Path]:
    """Build the source distribution, then from it each wheel; the files, in this order."""
    source = _built(python, REPOSITORY, "sdist", output, {})
    with tempfile.TemporaryDirectory(prefix="kernelcast-release-") as name:
        with tarfile.open(source) as archive:
            archive.extractall(name, filter="data")
        (unpacked,) = Path(name).iterdir()
        pure = _built(python, unpacked, "wheel", output, {VARIABLE: PURE})
        compiled = [
            machine_code(pure, interpreter, Path(name, f"machine-code-{number}"))
            for number, interpreter in enumerate(interpreters)
        ]
        ours = {platform.machine(): os.pathsep.join(map(str, compiled))}
        wheels = [
            _built(python, unpacked, "wheel", output, {VARIABLE: each, MACHINE_CODE_VARIABLE: ours.get(each, "")})
            for each in PLATFORMS
        ]
    return [source, *wheels, pure]


def machine_code(wheel: Path, interpreter: str, folder: Path) -> Path:
    """Install a wheel with the locked packages in a new environment, and compile there; the folder of its packages."""
    _run([interpreter, "-m", "venv", folder])
    python = folder / "bin" / "python"
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    _run([*pip, "--require-hashes", "--requirement", LOCK])
    _run([*pip, "--no-index", wheel])
    _run([folder / "bin" / "kernelcast", "compile", "--portable"], folder)
    (packages,) = folder.glob("lib/python3.*/site-packages")
    return packages


def judge(python: Path, path: Path) -> str:
    """The platform that a file runs on, in words.

    Raises:
        ReleaseError: Its tag promises more than auditwheel finds in its library.
    """
    if path.suffix != ".whl":
        return "source distribution"
    tag = path.stem.rpartition("-")[2]
    if tag == "any":
        return "runs anywhere, without the CUPTI decoder"
    shown = _run([python, "-m", "auditwheel", "show", path])
    found = _CONSISTENT.search(shown)
    if found is None or not at_most(found[1], tag):
        raise ReleaseError(f"{path.name} is tagged {tag}, and auditwheel says:\n{shown}")
    return f"auditwheel: {found[1]}"


def at_most(found: str, promised: str) -> bool:
    """Whether the C library that auditwheel found necessary is at most as new as the one that a tag promises."""
    pattern = re.compile(r"manylinux_(\d+)_(\d+)_(\w+)")
    one, other = pattern.fullmatch(found), pattern.fullmatch(promised)
    if one is None or other is None or one[3] != other[3]:
        return False
    return (int(one[1]), int(one[2])) <= (int(other[1]), int(other[2]))


def _built(python: Path, source: Path, target: str, output: Path, environ: Mapping[str, str]) -> Path:
    with tempfile.TemporaryDirectory(dir=output, prefix=".building-") as folder:
        _run([python, "-m", "hatchling", "build", "--target", target, "--directory", folder], source, environ)
        (made,) = Path(folder).iterdir()
        return made.replace(output / made.name)


def _run(command: Sequence[object], folder: Path = REPOSITORY, environ: Mapping[str, str] | None = None) -> str:
    texts = [str(part) for part in command]
    own = {**os.environ, **(environ or {})}
    done = subprocess.run(texts, cwd=folder, env=own, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ReleaseError(f"{' '.join(texts)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    main()
