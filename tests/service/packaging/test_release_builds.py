"""Wheels for other platforms are compiled and built."""

import importlib.util
import stat
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tests.support.packaging import load_build_hook

REPOSITORY = Path(__file__).resolve().parents[3]
SOURCES = len(list((REPOSITORY / "exporter/kernelcast/probe/cupti/native").glob("*.c")))
LIBRARY = "kernelcast/probe/cupti/libkernelcast_activity.so"
FAKE_COMPILER = """#!/bin/sh
printf '%s\\n' "$@" > "$0.arguments"
for last in "$@"; do :; done
: > "$last"
"""


@pytest.fixture
def hook_module() -> ModuleType:
    return load_build_hook()


def initialized(hook_module: ModuleType, folder: Path) -> dict[str, Any]:
    """Build data of a wheel after the hook has seen it."""
    build_data: dict[str, Any] = {"force_include": {}}
    hook = hook_module.PackageHook(str(REPOSITORY), {}, None, None, str(folder), "wheel", None)
    hook.initialize("standard", build_data)
    hook.finalize("standard", build_data, "")
    return build_data


@pytest.mark.parametrize("platform", ["x86_64", "aarch64"])
def test_a_wheel_for_a_platform_is_compiled_against_an_old_c_library(
    platform: str, hook_module: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = tmp_path / "compiler"
    compiler.write_text(FAKE_COMPILER)
    compiler.chmod(compiler.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(sys, "executable", str(compiler))
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: object())
    monkeypatch.setenv("KERNELCAST_WHEEL", platform)
    build_data = initialized(hook_module, tmp_path)
    arguments = compiler.with_suffix(".arguments").read_text().splitlines()
    assert arguments[:5] == ["-m", "ziglang", "cc", "-target", f"{platform}-linux-gnu.2.17"]
    assert sum(argument.endswith(".c") for argument in arguments) == SOURCES
    assert build_data["tag"] == f"py3-none-manylinux_2_17_{platform}"
    assert build_data["pure_python"] is False
    assert LIBRARY in build_data["force_include"].values()


def test_a_pure_wheel_is_built_on_request_where_there_is_a_compiler(
    hook_module: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNELCAST_WHEEL", "pure")
    build_data = initialized(hook_module, tmp_path)
    assert "tag" not in build_data
    assert LIBRARY not in build_data["force_include"].values()
    assert "kernelcast/cli/files/kernelcast.yaml" in build_data["force_include"].values()


def test_a_platform_that_cannot_be_compiled_for_ends_the_build(
    hook_module: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNELCAST_WHEEL", "riscv64")
    with pytest.raises(RuntimeError, match="must be empty, pure, or one of x86_64, aarch64"):
        initialized(hook_module, tmp_path)
    monkeypatch.setenv("KERNELCAST_WHEEL", "aarch64")
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(RuntimeError, match="ziglang is not installed: pip install ziglang"):
        initialized(hook_module, tmp_path)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: object())
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(RuntimeError, match="the CUPTI decoder cannot be compiled for aarch64"):
        initialized(hook_module, tmp_path)
