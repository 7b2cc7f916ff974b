"""Adds to a wheel what is not among the packages' sources: files for people, and the probe's compiled CUPTI decoder.

The environment variable KERNELCAST_WHEEL says for which platform:

* empty: for this machine, with its C compiler; a pure-Python wheel where there is none;
* `pure`: a pure-Python wheel, without the decoder; the probe then says that its CUPTI rung is missing, and why;
* `x86_64`, `aarch64`: for any Linux of that processor with glibc 2.17 or later, compiled by `ziglang`.

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

VARIABLE: Final = "KERNELCAST_WHEEL"
PURE: Final = "pure"
GLIBC: Final = (2, 17)
"""The oldest C library of a release: 2012; CUDA 12 and 13, and numpy's wheels, ask for as much or more."""
PLATFORMS: Final = ("x86_64", "aarch64")
PACKAGE: Final = Path("exporter/kernelcast/probe/cupti")
CODE: Final = "kernelcast"
FILES: Final = {"grafana": "kernelcast/grafana/files", "deploy": "kernelcast/cli/files"}
"""Folders of the checkout, and where a wheel has their content (`kernelcast.wire.package_files`)."""


class WheelHook(BuildHookInterface):  # type: ignore[type-arg]
    """One shared library that needs no Python API: a wheel for the platform, and for every Python."""

    PLUGIN_NAME = "custom"
    _made: "tempfile.TemporaryDirectory[str] | None" = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile the decoder, and say what goes into the wheel.

        Raises:
            RuntimeError: The platform that was asked for is unknown, or cannot be compiled for.
        """
        in_place = version == "editable"
        platform = "" if in_place else os.environ.get(VARIABLE, "")
        if not in_place:
            build_data["force_include"].update(_files(Path(self.root)))
        if platform == PURE:
            return
        command = _cross_compiler(platform) if platform else ()
        build = _module(Path(self.root) / PACKAGE / "build.py")
        folder = Path(self.root) / PACKAGE
        if not in_place:
            self._made = tempfile.TemporaryDirectory(prefix="kernelcast-")
            folder = Path(self._made.name)
        target = folder / build.LIBRARY_NAME
        reason = build.compile_library(target, command=command)
        if reason and platform:
            self.finalize(version, build_data, "")
            raise RuntimeError(f"{VARIABLE} is {platform}, and the CUPTI decoder cannot be compiled: {reason}")
        if reason:
            self.app.display_warning(f"the CUPTI decoder is left out: {reason}")
            return
        if not in_place:
            build_data["force_include"][str(target)] = f"kernelcast/probe/cupti/{build.LIBRARY_NAME}"
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{_platform_tag(platform)}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002  theirs
        """The wheel is written: what was compiled for it can go."""
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
    """What goes into the wheel beside the packages, each with its path there; code that lies beside it stays out."""
    for folder, target in FILES.items():
        for path in sorted((root / folder).iterdir()):
            if path.name != CODE:
                yield str(path), f"{target}/{path.name}"


def _module(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location("kernelcast_decoder_build", path)
    if spec is None or spec.loader is None:
        raise ImportError(path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
