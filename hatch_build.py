"""What a build adds to the sources: files for people, and the probe's compiled CUPTI decoder.

Without a C compiler the wheel is a pure one, and that rung of the probe says why it is missing.
"""

import importlib.util
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGE: Final = Path("exporter/kernelcast/probe/cupti")
CODE: Final = "kernelcast"
FILES: Final = {"grafana": "kernelcast/grafana/files", "deploy": "kernelcast/cli/files"}
"""Folders of the checkout, and where a wheel has their content (`kernelcast.wire.package_files`)."""


class WheelHook(BuildHookInterface):  # type: ignore[type-arg]
    """One shared library that needs no Python API: a wheel for the platform, and for every Python."""

    PLUGIN_NAME = "custom"
    _made: "tempfile.TemporaryDirectory[str] | None" = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and say what goes into the wheel."""
        in_place = version == "editable"
        if not in_place:
            build_data["force_include"].update(_files(Path(self.root)))
        build = _module(Path(self.root) / PACKAGE / "build.py")
        folder = Path(self.root) / PACKAGE
        if not in_place:
            self._made = tempfile.TemporaryDirectory(prefix="kernelcast-")
            folder = Path(self._made.name)
        target = folder / build.LIBRARY_NAME
        reason = build.compile_library(target)
        if reason:
            self.app.display_warning(f"the CUPTI decoder is left out: {reason}")
            return
        if not in_place:
            build_data["force_include"][str(target)] = f"kernelcast/probe/cupti/{build.LIBRARY_NAME}"
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002  theirs
        """The wheel is written: what was compiled for it can go."""
        if self._made is not None:
            self._made.cleanup()


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
