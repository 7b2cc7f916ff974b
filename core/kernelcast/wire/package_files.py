"""Files that are installed with the code (dashboards and rules, examples of a deployment): finds and copies them.

`kernelcast grafana files`, `kernelcast config` and the bridge's pages in a browser use it. A wheel has the files in a
folder `files` of the package that serves them (`hatch_build.py` puts them there); a checkout has them where they are
edited.
"""

import shutil
from pathlib import Path
from typing import Final

from kernelcast.wire.errors import ConfigurationError

FOLDER: Final = "files"
"""Of a package in a wheel. `hatch_build.py` has the same name."""


def package_files(package: Path, checkout: Path) -> Path:
    """The folder that holds a package's files.

    Args:
        package: The package's folder.
        checkout: Their folder in a checkout.

    Raises:
        ConfigurationError: Neither is there.
    """
    for folder in (package / FOLDER, checkout):
        if folder.is_dir():
            return folder
    raise ConfigurationError(f"{package / FOLDER} is missing from this installation; install kernelcast again")


def copy_files(source: Path, target: Path) -> list[Path]:
    """Copy a folder's files, replacing those of the same name; the paths written, in order.

    Args:
        source: The folder.
        target: Folder of the copies; made if needed.

    Raises:
        ConfigurationError: The target cannot be written.
    """
    written = []
    for path in sorted(source.rglob("*")):
        relative = path.relative_to(source)
        if not path.is_file():
            continue
        try:
            (target / relative).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target / relative)
        except OSError as error:
            problem = f"{target / relative} cannot be written: {error.strerror or error}"
            raise ConfigurationError(f"{problem}; give another --output") from error
        written.append(target / relative)
    return written
