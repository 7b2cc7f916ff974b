"""Adds to the package, beside its sources: files for people, the CUPTI decoder, the commit, the addresses.

The environment variable KERNELCAST_WHEEL says for which platform:

* empty: for this machine, with its C compiler; a pure-Python wheel where there is none;
* `pure`: a pure-Python wheel, without the decoder; the probe then says that its CUPTI rung is missing, and why;
* `x86_64`, `aarch64`: for any Linux of that processor with glibc 2.17 or later, compiled by `ziglang`.

`python -m release.wheels` builds all of them.
"""

import ast
import base64
import hashlib
import importlib.util
import itertools
import json
import os
import re
import sys
import sysconfig
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

try:
    import deflate
except ModuleNotFoundError:
    deflate = None  # type: ignore[assignment]
from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

LEVEL: Final = 12
"""The highest of libdeflate: 0.7 s for a wheel; zopfli saves 3 KB more, in 31 s."""
VARIABLE: Final = "KERNELCAST_WHEEL"
PURE: Final = "pure"
GLIBC: Final = (2, 17)
"""The oldest C library of a release: 2012; CUDA 12 and 13, and numpy's wheels, ask for as much or more."""
PLATFORMS: Final = ("x86_64", "aarch64")
PACKAGE: Final = Path("exporter/kernelcast/probe/cupti")
CLI: Final = Path("core/kernelcast/cli")
CODE: Final = "kernelcast"
IMPORTED: Final = "kernelcast/probe/"
"""What users' programs import: an editor shows them the strings below its names."""
RULE_TESTS: Final = "rules/tests/"
"""Of the rules that we ship: users change and test their own."""
FILES: Final = {"grafana": "kernelcast/grafana/files", "deploy": "kernelcast/cli/files"}
"""Folders of the checkout, and where a wheel has their content (`kernelcast.wire.package_files`)."""
RUNBOOKS: Final = "docs/runbooks.md"
"""A page of the documentation that the bridge serves."""
_STRING_OR_COMMENT: Final = re.compile(
    r"""(?P<string>(?P<quote>\"{3}|'{3}|"|')(?:\\.|[^\\])*?(?P=quote))|[ \t]*#[^\n]*""", re.DOTALL
)
"""A string, or a comment with the white space before it: Python's own tokenizer takes ten times as long."""
_COMMENT_IN_SCRIPT: Final = re.compile(rb"^[ \t]*//[^\n]*", re.MULTILINE)
"""A line of JavaScript that is a comment; no string of ours has several lines."""
_BLOCKS: Final = ("body", "orelse", "finalbody", "handlers", "cases")
"""Attributes of a statement that hold the statements below it; expressions hold none."""


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
            build_data["force_include"].update(_files(root, Path(self._made.name)))
        if platform != PURE:
            library = self._compile(Path(self._made.name), command)
            if library is not None:
                build_data["force_include"][str(library)] = f"kernelcast/probe/cupti/{library.name}"
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
        """Remove the temporary files and make a wheel as small as possible; the package is written by now."""
        if self._made is not None:
            self._made.cleanup()
        if artifact_path and version == "standard" and self.target_name == "wheel":
            _shrink(Path(artifact_path))


class _Compressor:
    """Compresses one file of a wheel with libdeflate, as `zlib.compressobj` would; zlib reads the result."""

    def __init__(self) -> None:
        self._body = bytearray()

    def compress(self, data: bytes) -> bytes:
        """Keep a part of the file."""
        self._body += data
        return b""

    def flush(self) -> bytes:
        """Return the whole file, compressed."""
        return bytes(deflate.deflate_compress(self._body, LEVEL))


def _shrink(wheel: Path) -> None:
    """Write a wheel again: better compressed, and its Python files without 250 KB that only readers of sources see.

    That is comments, linters' mostly, strings below a constant or field, which Python drops, docstrings of private
    functions, classes and methods and of constructors, and all but the first line of a docstring of modules, other
    classes, and other functions that have no decorator. Pages and commands show some of the rest. In `IMPORTED` all
    strings stay. Scripts of pages lose their lines of comments (2 KB). The files, their order, their times and their
    line numbers stay. libdeflate saves 40 KB of 2 MB; where its package is not installed, as for someone who installs
    from a checkout, zlib's highest level has to do.
    """
    packed, changed = wheel.with_suffix(".packed"), dict[str, bytes]()
    with zipfile.ZipFile(wheel) as before, zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as after:
        for entry in before.infolist():
            body = before.read(entry)
            if entry.filename.endswith(".py"):
                imported = entry.filename.startswith(IMPORTED)
                body = changed[entry.filename] = _without_comments(body, [] if imported else _unread_texts(body))
            elif entry.filename.endswith(".js"):
                body = changed[entry.filename] = _COMMENT_IN_SCRIPT.sub(b"", body)
            elif entry.filename.endswith(".dist-info/RECORD"):
                body = _record(body.decode(), changed).encode()
            entry.compress_type, entry.file_size = zipfile.ZIP_DEFLATED, len(body)
            file: Any
            with after.open(entry, "w") as file:
                if deflate is not None:
                    file._compressor = _Compressor()  # noqa: SLF001  zipfile has no public way
                file.write(body)
    packed.replace(wheel)


def _without_comments(source: bytes, texts: Iterable[tuple[int, int]]) -> bytes:
    lines = _STRING_OR_COMMENT.sub(lambda found: found["string"] or "", source.decode()).split("\n")
    for first, last in texts:
        lines[first - 1 : last] = [""] * (last - first + 1)
    return "\n".join(lines).encode()


def _unread_texts(source: bytes) -> Iterator[tuple[int, int]]:
    """The first and last line, from 1, of each text that is never shown: see `_shrink`."""
    module = ast.parse(source)
    blocks: list[Any] = [module]
    for block in blocks:
        body: list[ast.stmt] = getattr(block, "body", [])
        for before, text in itertools.pairwise(body):
            if isinstance(before, ast.Assign | ast.AnnAssign):
                yield from _lines_of(text)
        if isinstance(block, ast.FunctionDef | ast.ClassDef) and _is_internal(block.name) and len(body) > 1:
            yield from _lines_of(body[0])
        elif body and (not isinstance(block, ast.FunctionDef) or not block.decorator_list) and _has_docstring(block):
            # Its first line stays: a page shows that of the functions which answer it. Commands are decorated.
            yield from ((first + 1, last - 1) for first, last in _lines_of(body[0]) if last > first + 1)
        for name in _BLOCKS:
            blocks += getattr(block, name, [])


def _has_docstring(block: Any) -> bool:
    return isinstance(block, ast.Module | ast.ClassDef | ast.FunctionDef)


def _is_internal(name: str) -> bool:
    return name == "__init__" or (name.startswith("_") and not name.startswith("__"))


def _lines_of(statement: ast.stmt) -> Iterator[tuple[int, int]]:
    """The first and last line of a statement that is a string and nothing else."""
    match statement:
        case ast.Expr(value=ast.Constant(value=str()), lineno=first, end_lineno=int(last)):
            yield first, last


def _record(text: str, changed: Mapping[str, bytes]) -> str:
    """The list of a wheel's files, with the hashes and sizes of those that were changed; it comes last in a wheel."""
    lines = []
    for line in text.splitlines():
        body = changed.get(name := line.split(",")[0])
        digest = base64.urlsafe_b64encode(hashlib.sha256(body or b"").digest()).rstrip(b"=").decode()
        lines.append(line if body is None else f"{name},sha256={digest},{len(body)}")
    return "\n".join([*lines, ""])


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


def _files(root: Path, made: Path) -> Iterator[tuple[str, str]]:
    """Files for the wheel beside the packages, each with its path there, without code and rule tests beside them.

    JSON is written without indentation to the folder `made`: that of the dashboards takes 22 KB of the wheel.
    """
    for folder, target in FILES.items():
        for path in sorted((root / folder).rglob("*")):
            inside = path.relative_to(root / folder)
            if path.is_file() and inside.parts[0] != CODE and not inside.as_posix().startswith(RULE_TESTS):
                packed = path
                if path.suffix == ".json":
                    packed = made / folder / inside
                    packed.parent.mkdir(parents=True, exist_ok=True)
                    text = json.dumps(json.loads(path.read_bytes()), ensure_ascii=False, separators=(",", ":"))
                    packed.write_text(text + "\n", encoding="utf-8")
                yield str(packed), f"{target}/{inside.as_posix()}"
    yield str(root / RUNBOOKS), f"{FILES['grafana']}/{Path(RUNBOOKS).name}"


def _module(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location("kernelcast_decoder_build", path)
    if spec is None or spec.loader is None:
        raise ImportError(path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
