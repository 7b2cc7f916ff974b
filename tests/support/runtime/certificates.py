"""Certificates for tests, made with the openssl command."""

import subprocess
from pathlib import Path

ELLIPTIC = ("ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")


def self_signed(folder: Path, name: str, kind: tuple[str, ...] = ELLIPTIC) -> tuple[Path, Path]:
    """A certificate for localhost and 127.0.0.1 that signs itself, and its key."""
    certificate, key = folder / f"{name}.crt", folder / f"{name}.key"
    command = ["openssl", "req", "-x509", "-newkey", *kind, "-nodes"]
    command += ["-days", "2", "-subj", f"/CN={name}", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    subprocess.run([*command, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True)
    return certificate, key
