"""Everything that depends on where the project is published, made from one value.

The value is `repository` of `[tool.kernelcast]` in pyproject.toml: the repository's address, such as
`https://HOST/OWNER/NAME`, and empty until there is one. From it come the package's `[project.urls]` and the absolute
links of the README as package indexes show it (both in `hatch_build.py`, which loads this file by its path), and the
contact in `SECURITY.md`. So this file imports the standard library alone.

    python -m release.addresses            # writes SECURITY.md
    python -m release.addresses --check    # exits with 1 where it is not up to date
"""

import argparse
import re
import sys
import tomllib
from pathlib import Path
from typing import Final

REPOSITORY: Final = Path(__file__).resolve().parents[2]
SECURITY: Final = "SECURITY.md"
_ADDRESS: Final = re.compile(r"https://[\w.-]+(/[\w.-]+)+")
_RELATIVE_LINK: Final = re.compile(r"\]\((?!\w+:|#|/)([^)\s]+)\)")

_NO_CONTACT: Final = """\
The project has not been published yet, so there is no address to report to. Tell whoever gave you the package, and do
not publish the details before there is a release that mends it."""
_CONTACT: Final = """\
Report privately at <{repository}/security/advisories/new>. Do not open an issue, and do not publish the details before
there is a release that mends it."""
_PAGE: Final = """\
<!-- Made by `python -m release.addresses` from `repository` in pyproject.toml. -->
# Security

## Reporting a vulnerability
{contact}

Say which version it is (`kernelcast --version`), which daemon or whether it is the probe, the access that an attacker
needs, and the harm. A program or a message that shows it is worth more than a description.

## Supported versions
The newest release. Before 1.0 there are no branches for older ones.

## Threat model
[docs/security.md](docs/security.md) says who may reach what, what each can do with it, and how to close it.
"""


class AddressError(Exception):
    """`repository` is not an address that links can be made from."""


def repository(root: Path = REPOSITORY) -> str:
    """The repository's address; empty until there is one.

    Raises:
        AddressError: It is neither empty nor an address like `https://HOST/OWNER/NAME`.
    """
    content = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    found: str = content["tool"]["kernelcast"]["repository"]
    if found and not _ADDRESS.fullmatch(found):
        raise AddressError(
            f"repository in pyproject.toml is {found!r}; it must be empty or like https://HOST/OWNER/NAME"
        )
    return found


def project_urls(address: str, version: str) -> dict[str, str]:
    """`[project.urls]`; none without an address."""
    if not address:
        return {}
    at_release = f"{address}/blob/v{version}"
    return {
        "Homepage": address,
        "Documentation": f"{at_release}/README.md",
        "Source": address,
        "Issues": f"{address}/issues",
        "Changelog": f"{at_release}/CHANGELOG.md",
        "Security": f"{at_release}/{SECURITY}",
    }


def with_absolute_links(text: str, address: str, version: str) -> str:
    """A page of the repository's root as it can be read elsewhere; unchanged without an address."""
    return _RELATIVE_LINK.sub(rf"]({address}/blob/v{version}/\1)", text) if address else text


def security_page(address: str) -> str:
    """The content of SECURITY.md."""
    return _PAGE.format(contact=_CONTACT.format(repository=address) if address else _NO_CONTACT)


def main() -> None:
    """Write SECURITY.md, or compare it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="Write nothing; exit with 1 if the file differs.")
    path = REPOSITORY / SECURITY
    text = security_page(repository())
    if not parser.parse_args().check:
        path.write_text(text, encoding="utf-8")
    elif not path.is_file() or path.read_text(encoding="utf-8") != text:
        sys.exit(f"{SECURITY} is not what pyproject.toml says; run: python -m release.addresses")


if __name__ == "__main__":
    main()
