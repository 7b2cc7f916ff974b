"""Writes the digests of base images into files, in the CI of a release: `python -m release.digests FILE…`.

`IMAGE:TAG` becomes `IMAGE:TAG@sha256:…` in lines `ARG BASE=…` of a Dockerfile and `image: …` of a compose file. The
digest is the registry's at that moment, which `docker buildx imagetools` looks up. Nothing in the repository has one.
"""

import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

_OURS: Final = "kernelcast"
"""Name of our own image, which gets no digest."""
_IMAGE: Final = re.compile(
    r"^(?P<before>ARG BASE=|\s+image: )(?P<name>[a-z0-9][\w./-]*(?::[\w.-]+)?)(?P<old>@sha256:[0-9a-f]{64})?$",
    re.MULTILINE,
)
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")


class DigestError(Exception):
    """A digest cannot be looked up; the message says why."""


def pinned(text: str, digest_of: Callable[[str], str]) -> str:
    """A file's text with the present digest at each image that is not ours.

    Raises:
        DigestError: An image has no tag, or its digest is not one.
    """

    def pin(found: "re.Match[str]") -> str:
        name = found["name"]
        if name.partition(":")[0] == _OURS:
            return found[0]
        if ":" not in name:
            raise DigestError(f"{name} has no tag; name a version, so that the digest is one of it")
        digest = digest_of(name)
        if not _DIGEST.fullmatch(digest):
            raise DigestError(f"the digest of {name} is {digest!r}; it must be like sha256:…")
        return f"{found['before']}{name}@{digest}"

    return _IMAGE.sub(pin, text)


def by_docker(name: str) -> str:
    """The digest of an image in its registry.

    Raises:
        DigestError: Docker is missing, or refuses.
    """
    command = ["docker", "buildx", "imagetools", "inspect", name, "--format", "{{.Manifest.Digest}}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DigestError(f"docker cannot be run: {error}; install it with its plugin buildx") from error
    if done.returncode:
        raise DigestError(f"docker does not know the digest of {name}: {done.stderr.strip()}")
    return done.stdout.strip()


def main(arguments: Sequence[str]) -> int:
    """Rewrite the files; returns the exit code."""
    if not arguments:
        sys.stderr.write("usage: python -m release.digests FILE…\n")
        return 2
    try:
        for path in map(Path, arguments):
            path.write_text(pinned(path.read_text(encoding="utf-8"), by_docker), encoding="utf-8")
            sys.stdout.write(f"{path}\n")
    except (DigestError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
