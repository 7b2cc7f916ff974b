"""Installed size of each extra, in packages and in MB on disk: a fresh environment and a wheel of this checkout.

    python benchmarks/install_sizes.py [EXTRA …]

It installs the locked versions with pip, and so needs a package index.
"""

import argparse
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
EXTRAS = ("exporter", "replay", "bridge", "predictor", "grafana", "all")
MB = 1_000_000


def constraints(folder: Path) -> Path:
    """The lock file as constraints: without hashes, which pip would want of our wheel, too."""
    lines = (REPOSITORY / "requirements.lock").read_text().splitlines()
    path = folder / "constraints.txt"
    path.write_text("\n".join(line.rstrip(" \\") for line in lines if "--hash=" not in line) + "\n")
    return path


def measure(folder: Path) -> tuple[int, int, dict[str, int]]:
    """Number of packages in a folder of packages, its bytes on disk, and the bytes of each entry."""
    entries = {
        entry.name: sum(file.lstat().st_blocks * 512 for file in (entry, *entry.rglob("*")))
        for entry in folder.iterdir()
    }
    return len(list(folder.glob("*.dist-info"))), sum(entries.values()), entries


def install(folder: Path, wheel: Path, extra: str, pins: Path) -> str:
    """Install one extra; a line about it."""
    venv.create(folder, with_pip=True, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    count, size, entries = measure(packages)
    python = folder / "bin" / "python"
    command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*command, "--constraint", str(pins), f"{wheel}[{extra}]"], check=True)
    count_after, size_after, entries_after = measure(packages)
    grown = {name: size - entries.get(name, 0) for name, size in entries_after.items()}
    largest = sorted(grown, key=lambda name: -grown[name])[:4]
    shown = ", ".join(f"{name} {grown[name] / MB:.0f}" for name in largest)
    return f"{extra:<10} {count_after - count:3} packages {(size_after - size) / MB:6.0f} MB: {shown}"


def main() -> None:
    """Print a line for each extra."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("extras", nargs="*", default=EXTRAS)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kernelcast-sizes-") as name:
        folder = Path(name)
        build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", name]
        subprocess.run(build, cwd=REPOSITORY, check=True, stdout=subprocess.DEVNULL)
        (wheel,) = folder.glob("*.whl")
        pins = constraints(folder)
        for extra in arguments.extras:
            print(install(folder / extra, wheel, extra, pins), flush=True)


if __name__ == "__main__":
    main()
