"""Prints a bill of materials of this Python environment and its Debian packages, as CycloneDX 1.6: `python sbom.py`.

The build of the image runs it. It imports the standard library alone, so that any environment can describe itself. The
same environment gives the same bytes.

Source: https://cyclonedx.org/docs/1.6/json/; package URLs as in https://github.com/package-url/purl-spec.
"""

import json
import re
import sys
import uuid
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

SPECIFICATION: Final = "1.6"
SUBJECT: Final = "kernelcast"
DPKG_STATUS: Final = Path("/var/lib/dpkg/status")
_SEPARATORS: Final = re.compile(r"[-_.]+")
_REQUIREMENT: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def document(found: Iterable[Distribution], dpkg_status: str = "") -> dict[str, Any]:
    """The bill of materials.

    Args:
        found: The distributions of a Python environment.
        dpkg_status: The text of Debian's list of installed packages; empty without Debian.
    """
    by_name = {normalised(one.metadata["Name"]): one for one in found}
    python = {name: _python_component(name, one) for name, one in sorted(by_name.items())}
    subject = python.pop(SUBJECT, {"type": "application", "bom-ref": SUBJECT, "name": SUBJECT})
    components = [*python.values(), *_debian_components(dpkg_status)]
    body = {
        "metadata": {"component": {**subject, "type": "application"}},
        "components": components,
        "dependencies": [_dependencies(one, by_name) for _, one in sorted(by_name.items())],
    }
    identity = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(body, sort_keys=True))
    return {
        "$schema": f"http://cyclonedx.org/schema/bom-{SPECIFICATION}.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": SPECIFICATION,
        "serialNumber": f"urn:uuid:{identity}",
        "version": 1,
        **body,
    }


def normalised(name: str) -> str:
    """A project's name as package URLs have it."""
    return _SEPARATORS.sub("-", name).lower()


def _reference(one: Distribution) -> str:
    return f"pkg:pypi/{normalised(one.metadata['Name'])}@{quote(one.version, safe='')}"


def _python_component(name: str, one: Distribution) -> dict[str, Any]:
    reference = _reference(one)
    component: dict[str, Any] = {"type": "library", "bom-ref": reference, "name": name}
    component |= {"version": one.version, "purl": reference}
    metadata: dict[str, str] = dict(one.metadata.items())  # type: ignore[attr-defined]
    expression, text = metadata.get("License-Expression"), metadata.get("License", "")
    if expression:
        component["licenses"] = [{"expression": expression}]
    elif text and "\n" not in text:
        component["licenses"] = [{"license": {"name": text}}]
    return component


def _dependencies(one: Distribution, by_name: Mapping[str, Distribution]) -> dict[str, Any]:
    """The installed distributions that one names; those of an extra count, as they are here."""
    names = {normalised(_REQUIREMENT.match(text)[0]) for text in one.requires or () if _REQUIREMENT.match(text)}  # type: ignore[index]
    return {"ref": _reference(one), "dependsOn": sorted(_reference(by_name[name]) for name in names if name in by_name)}


def _debian_components(status: str) -> Iterator[dict[str, Any]]:
    for paragraph in status.split("\n\n"):
        fields = dict(re.findall(r"^(Package|Version|Architecture|Status): (.*)$", paragraph, re.MULTILINE))
        if fields.get("Status") != "install ok installed":
            continue
        name, version = fields["Package"], fields["Version"]
        reference = f"pkg:deb/debian/{quote(name, safe='')}@{quote(version, safe='')}?arch={fields['Architecture']}"
        yield {"type": "library", "bom-ref": reference, "name": name, "version": version, "purl": reference}


def main() -> int:
    """Print the bill of materials of the environment that runs this."""
    status = DPKG_STATUS.read_text(encoding="utf-8") if DPKG_STATUS.exists() else ""
    json.dump(document(distributions(), status), sys.stdout, indent=1, sort_keys=True)
    sys.stdout.write("\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
