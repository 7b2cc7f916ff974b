"""Adds to the package, beside its sources: files for people, CUPTI decoder, machine code, the commit, the addresses.

The environment variable KERNELCAST_WHEEL says for which platform:

* empty: for this machine, with its C compiler; a pure-Python wheel where there is none;
* `pure`: a pure-Python wheel, without the decoder; the probe then says that its CUPTI rung is missing, and why;
* `x86_64`, `aarch64`: for any Linux of that processor with glibc 2.17 or later, compiled by `ziglang`.

KERNELCAST_MACHINE_CODE names folders, as PATH does, that have the package with machine code of its sources beside them
(`kernelcast compile --portable`). The code goes into a wheel for a platform: without it, the first start compiles.

`python -m release.wheels` builds all of them.
"""

import importlib.util
import os
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

VARIABLE: Final = "KERNELCAST_WHEEL"
MACHINE_CODE_VARIABLE: Final = "KERNELCAST_MACHINE_CODE"
PURE: Final = "pure"
GLIBC: Final = (2, 17)
"""The oldest C library of a release: 2012; CUDA 12 and 13, and numpy's wheels, ask for as much or more."""
PLATFORMS: Final = ("x86_64", "aarch64")
PACKAGE: Final = Path("exporter/kernelcast/probe/cupti")
CLI: Final = Path("core/kernelcast/cli")
CODE: Final = "kernelcast"
RULE_TESTS: Final = "rules/tests/"
"""Of the rules that we ship: users change and test their own."""
FILES: Final = {"grafana": "kernelcast/grafana/files", "deploy": "kernelcast/cli/files"}
"""Folders of the checkout, and where a wheel has their content (`kernelcast.wire.package_files`)."""
RUNBOOKS: Final = "docs/runbooks.md"
"""A page of the documentation that the bridge serves."""


class AddressHook(MetadataHookInterface):
    """Fills in the README with absolute links, and the URLs, as far as there is an address."""

    PLUGIN_NAME = "custom"

    def update(self, metadata: dict[str, Any]) -> None:
        """Set `readme` and `urls`."""
        root = Path(self.root)
        addresses = _module(root / "core" / "release" / "addresses.py")
        address, version = addresses.repository(root), metadata["version"]
        text = addresses.with_absolute_links((root / "README.md").read_text(encoding="utf-8"), address, version)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
        metadata["urls"] = addresses.project_urls(address, version)


class PackageHook(BuildHookInterface):  # type: ignore[type-arg]
    """Adds files to a wheel or a source distribution; a library that needs no Python API suits every Python."""

    PLUGIN_NAME = "custom"
    _made: "tempfile.TemporaryDirectory[str] | None" = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Say what goes into the package; for a wheel, compile the decoder.

        Raises:
            RuntimeError: The platform that was asked for is unknown, or cannot be compiled for.
        """
        root = Path(self.root)
        if version == "editable":
            self._compile(root / PACKAGE)
            return  # `kernelcast --version` asks git
        platform = os.environ.get(VARIABLE, "") if self.target_name == "wheel" else PURE
        command = _cross_compiler(platform) if platform not in ("", PURE) else ()
        self._made = tempfile.TemporaryDirectory(prefix="kernelcast-")
        self._add_commit(build_data, Path(self._made.name))
        if self.target_name == "wheel":
            build_data["force_include"].update(_files(root))
        if platform != PURE:
            library = self._compile(Path(self._made.name), command)
            added = dict(_machine_code())
            if library is not None:
                added[str(library)] = f"kernelcast/probe/cupti/{library.name}"
            if added:
                build_data["force_include"].update(added)
                build_data["pure_python"] = False
                build_data["tag"] = f"py3-none-{_platform_tag(platform)}"

    def _compile(self, folder: Path, command: tuple[str, ...] = ()) -> Path | None:
        """Compile the decoder into a folder; None where this machine has no compiler."""
        build = _module(Path(self.root) / PACKAGE / "build.py")
        library: Path = folder / build.LIBRARY_NAME
        reason = build.compile_library(library, command=command)
        if reason and command:
            self.finalize("", {}, "")
            raise RuntimeError(f"the CUPTI decoder cannot be compiled for {os.environ[VARIABLE]}: {reason}")
        if reason:
            self.app.display_warning(f"the CUPTI decoder is left out: {reason}")
        return None if reason else library

    def _add_commit(self, build_data: dict[str, Any], folder: Path) -> None:
        """Add the commit, where it is known; an unpacked source distribution has it among its sources."""
        root = Path(self.root)
        revision = _module(root / CLI / "revision.py")
        commit = revision.commit_of_checkout(root)
        if commit:
            (folder / revision.COMMIT_FILE).write_text(f"{commit}\n", encoding="utf-8")
            package = "kernelcast/cli" if self.target_name == "wheel" else CLI
            build_data["force_include"][str(folder / revision.COMMIT_FILE)] = f"{package}/{revision.COMMIT_FILE}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002  theirs
        """Remove the temporary files; the package is written by now."""
        if self._made is not None:
            self._made.cleanup()


def _cross_compiler(platform: str) -> tuple[str, ...]:
    """The command that compiles for a platform of `PLATFORMS` and links with the oldest C library."""
    if platform not in PLATFORMS:
        raise RuntimeError(f"{VARIABLE} is {platform!r}; it must be empty, {PURE}, or one of {', '.join(PLATFORMS)}")
    if importlib.util.find_spec("ziglang") is None:
        raise RuntimeError(f"{VARIABLE} is {platform}, and ziglang is not installed: pip install ziglang")
    glibc = ".".join(map(str, GLIBC))
    return (sys.executable, "-m", "ziglang", "cc", "-target", f"{platform}-linux-gnu.{glibc}", "-s")


def _platform_tag(platform: str) -> str:
    if platform:
        return f"manylinux_{GLIBC[0]}_{GLIBC[1]}_{platform}"
    return sysconfig.get_platform().replace("-", "_").replace(".", "_")


def _files(root: Path) -> Iterator[tuple[str, str]]:
    """Files for the wheel beside the packages, each with its path there, without code and rule tests beside them."""
    for folder, target in FILES.items():
        for path in sorted((root / folder).rglob("*")):
            inside = path.relative_to(root / folder)
            if path.is_file() and inside.parts[0] != CODE and not inside.as_posix().startswith(RULE_TESTS):
                yield str(path), f"{target}/{inside.as_posix()}"
    yield str(root / RUNBOOKS), f"{FILES['grafana']}/{Path(RUNBOOKS).name}"


def _machine_code() -> Iterator[tuple[str, str]]:
    """Files of numba's cache, each with its path in the wheel: beside the source that it was made from."""
    for folder in filter(None, os.environ.get(MACHINE_CODE_VARIABLE, "").split(os.pathsep)):
        for path in sorted(Path(folder, CODE).rglob("__pycache__/*.nb[ic]")):
            yield str(path), path.relative_to(folder).as_posix()


def _module(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location("kernelcast_decoder_build", path)
    if spec is None or spec.loader is None:
        raise ImportError(path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
