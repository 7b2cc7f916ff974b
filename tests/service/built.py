"""Go programs that no package brings in the version we need: built from their modules, once, into a cache folder.

A module whose go.mod replaces another cannot be `go install`ed, so it is built inside its own unpacked source. That
takes minutes, so no test does it: `python -m tests.service.built [NAME]` does, and tests use the programs in the cache.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

LINKED: Final = "-s -w"
"""Without symbols: half the size, and less to link."""
NICE: Final = ("nice", "-n", "10")
REQUIRED: Final = "KERNELCAST_REQUIRE_BUILT"
"""A variable; with the value 1, a program that has not been built fails the test that needs it."""


class BuildError(Exception):
    """A Go program cannot be had; the message says why and what to do."""


def cache() -> Path:
    """The folder of built programs, outside every checkout."""
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "kernelcast"


def go(*arguments: str, directory: Path, environ: Mapping[str, str] | None = None) -> str:
    """Runs the Go command and returns its output.

    Raises:
        BuildError: There is no Go, or it failed.
    """
    if shutil.which("go") is None:
        raise BuildError("go is not on PATH; install Go (https://go.dev/dl) to build this program")
    own = {**os.environ, "GOWORK": "off", "GOFLAGS": "-mod=mod", **(environ or {})}
    done = subprocess.run(
        [*NICE, "go", *arguments], cwd=directory, env=own, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise BuildError(f"go {' '.join(arguments)} failed:\n{done.stderr[-2000:]}")
    return done.stdout


def source(module: str, version: str) -> Path:
    """The unpacked source of a module, fetched through the module proxy.

    Raises:
        BuildError: There is no Go, or no such module.
    """
    cache().mkdir(parents=True, exist_ok=True)
    answer = go("mod", "download", "-json", f"{module}@{version}", directory=cache())
    return Path(json.loads(answer)["Dir"])


class Built(ABC):
    """A program that is built once, into the cache."""

    name: str
    release: str

    @property
    def path(self) -> Path:
        """The path of its binary, once built."""
        return cache() / f"{self.name}-{self.release}" / self.name

    @abstractmethod
    def build(self) -> Path:
        """Build it if it has not been built yet.

        Raises:
            BuildError: It cannot be built here.
        """

    def found(self) -> Path:
        """For tests: its binary where a cache has it, else a skip that says how to have it built.

        Building takes minutes and Go, so `make nightly` does it, and there a missing binary fails the test.
        """
        if not self.path.exists():
            reason = f"{self.name} {self.release} is not in {cache()}; python -m tests.service.built builds it"
            if os.environ.get(REQUIRED) == "1":
                pytest.fail(f"{reason} (required by {REQUIRED}=1)")
            pytest.skip(reason)
        return self.path


@dataclass(frozen=True)
class Program(Built):
    """One program of a Go module.

    Attributes:
        name: The binary's.
        module: The module's path.
        version: The module's version.
        release: The version as its users write it.
        package: The package of its `main`, relative to the module.
        tags: Build tags that leave out unneeded parts.
        version_variable: The Go variable that holds the program's release, if there is one.
        without: Modules that it requires and that are left out; the files in `replaced` do without them.
        replaced: Files of the module by their path, with the new text of each.
    """

    name: str
    module: str
    version: str
    release: str
    package: str
    tags: Sequence[str]
    version_variable: str = ""
    without: Sequence[str] = ()
    replaced: Mapping[str, str] = field(default_factory=dict)

    def build(self) -> Path:
        """Build it if it has not been built yet.

        Raises:
            BuildError: It cannot be built here.
        """
        if not self.path.exists():
            part = self.path.with_suffix(f".{os.getpid()}")
            part.parent.mkdir(parents=True, exist_ok=True)
            tags = ("-tags", ",".join(self.tags)) if self.tags else ()
            linked = f"{LINKED} -X {self.version_variable}={self.release}" if self.version_variable else LINKED
            build = ("build", "-trimpath", *tags, "-ldflags", linked, "-o", str(part), self.package)
            with tempfile.TemporaryDirectory(prefix="kernelcast-go-") as name:
                where = self._source(Path(name) / "source")
                go(*build, directory=where, environ={"GOFLAGS": "-mod=readonly", "CGO_ENABLED": "0"})
            part.rename(self.path)
        return self.path

    def _source(self, copy: Path) -> Path:
        """The module's source; a copy of it where files are replaced."""
        original = source(self.module, self.version)
        if not self.replaced:
            return original
        shutil.copytree(original, copy, copy_function=shutil.copyfile)
        for folder in (copy, *(path for path in copy.rglob("*") if path.is_dir())):
            folder.chmod(0o755)
        for path, text in self.replaced.items():
            (copy / path).write_text(text)
        for module in self.without:
            go("mod", "edit", f"-droprequire={module}", directory=copy)
        return copy


@dataclass(frozen=True)
class Collector(Built):
    """An OpenTelemetry Collector with the components of a manifest of its builder.

    Attributes:
        name: The binary's.
        release: The Collector's version.
        manifest: The builder's file; it names the binary `otelcol`.
    """

    name: str
    release: str
    manifest: Path

    def build(self) -> Path:
        """Build it if it has not been built yet.

        Raises:
            BuildError: It cannot be built here.
        """
        if not self.path.exists():
            work = self.path.parent / f"build.{os.getpid()}"
            work.mkdir(parents=True, exist_ok=True)
            manifest = shutil.copy(self.manifest, work)
            builder = f"go.opentelemetry.io/collector/cmd/builder@v{self.release}"
            go("run", builder, "--config", str(manifest), directory=work, environ={"CGO_ENABLED": "0"})
            (work / "otelcol").rename(self.path)
            shutil.rmtree(work)
        return self.path


PROMETHEUS: Final = Program(
    name="prometheus",
    module="github.com/prometheus/prometheus",
    version="v0.315.0",
    release="3.15.0",
    package="./cmd/prometheus",
    tags=("remove_all_sd",),
    version_variable="github.com/prometheus/common/version.Version",
)
"""Without its service discoveries but files and HTTP, and without its user interface.

From an empty cache: 4 min 12 s, 256 s of CPU, 1.0 GB fetched and 0.8 GB of build cache, on two shared virtual cores.
"""


HELM: Final = Program(
    name="helm",
    module="helm.sh/helm/v3",
    version="v3.19.0",
    release="3.19.0",
    package="./cmd/helm",
    tags=(),
    version_variable="helm.sh/helm/v3/internal/version.version",
)
"""From an empty cache 3 min on two shared virtual cores."""

COMPOSE: Final = Program(
    name="compose-go",
    module="github.com/compose-spec/compose-go/v2",
    version="v2.16.2",
    release="2.16.2",
    package="./cmd",
    tags=(),
    replaced={
        "cmd/main.go": """package main

import (
	"context"
	"fmt"
	"os"

	"github.com/compose-spec/compose-go/v2/cli"
)

func written() ([]byte, error) {
	options, err := cli.NewProjectOptions(os.Args[1:], cli.WithOsEnv, cli.WithDotEnv)
	if err != nil {
		return nil, err
	}
	project, err := options.LoadProject(context.Background())
	if err != nil {
		return nil, err
	}
	return project.MarshalYAML()
}

func main() {
	text, err := written()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Print(string(text))
}
"""
    },
)
"""A program that reads, checks and writes a project as `docker compose config` does; the module brings none itself."""

DASHBOARD_LINTER: Final = Program(
    name="dashboard-linter",
    module="github.com/grafana/dashboard-linter",
    version="v0.2.0",
    release="0.2.0",
    package=".",
    tags=(),
    without=("github.com/grafana/grafana/apps/dashboard",),
    replaced={
        "lint/v2.go": """package lint

import (
	"encoding/json"
	"errors"
)

func isV2APIVersion(string) bool { return false }

func newDashboardFromV2(json.RawMessage, string) (Dashboard, error) {
	return Dashboard{}, errors.New("dashboards of schema v2 are not read by this build")
}
""",
        "lint/v2_test.go": "package lint\n",
    },
)
"""Without its reader of schema v2, which we do not write: its module, a part of Grafana, is not at the module proxy."""

COLLECTOR: Final = Collector(
    name="otelcol-recipes",
    release="0.155.0",
    manifest=Path(__file__).parents[2] / "deploy" / "collector" / "builder.yaml",
)

PROGRAMS: Final = (HELM, COMPOSE, DASHBOARD_LINTER, PROMETHEUS, COLLECTOR)


if __name__ == "__main__":
    try:
        for program in PROGRAMS:
            if program.name in (sys.argv[1:] or [program.name]):
                sys.stdout.write(f"{program.build()}\n")
    except BuildError as error:
        sys.exit(str(error))
