"""Documents that are read as a whole: packed messages, web configurations.

A document has a shape and a reader. The reader returns the faults of its result, and raises the error by which
the product refuses a document; any other exception is a finding.
"""

import atexit
import gzip
import json
import random
import shutil
import struct
import tempfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.support.runtime.certificates import self_signed

from kernelcast.bridge.inputs.unpacking import unpacked
from kernelcast.columnar import DecoderLimits
from kernelcast.runtime.web.config import read_web_config
from kernelcast.wire.errors import ConfigurationError, DecodeError, KernelcastError

LIMITS = DecoderLimits(message_bytes=4096)
HASH = "$2y$10$XYi5Y4lmK.6zWA4xjBUYTOSDJXX3xPAUkRS9qN7wvUEl6kzMcTzhW"


@dataclass(frozen=True)
class Document:
    """A reader under test.

    Attributes:
        name: The format that it reads.
        shape: Makes a document as its writer does.
        read: Reads one document; returns the fault of the result, empty if there is none.
        refusal: The error by which a document is refused.
        share: Of the inputs that a parser gets, this part: some readers are slow.
        remedy: Whether a refusal says what to do, behind a semicolon.
    """

    name: str
    shape: Callable[[random.Random], bytes]
    read: Callable[[bytes], str]
    refusal: type[KernelcastError]
    share: float = 1.0
    remedy: bool = True


def gzip_members(rng: random.Random) -> bytes:
    """Some gzip members, empty ones among them, with and without the optional fields of their headers."""
    members = []
    for _ in range(rng.randrange(1, 5)):
        content = rng.choice((b"", b"up 1\n", rng.randbytes(rng.randrange(600)), b"a" * rng.randrange(3000)))
        member = gzip.compress(content, rng.choice((0, 1, 9)), mtime=0)
        if rng.random() < 0.2:
            member = member[:3] + b"\x08" + member[4:10] + b"name\0" + member[10:]
        members.append(member)
    return b"".join(members)


def _read_gzip(message: bytes) -> str:
    """The standard library's reader must accept every accepted document, with the same content."""
    content = unpacked(message, "gzip", LIMITS)
    try:
        expected = gzip.decompress(message)
    except (OSError, EOFError, zlib.error, struct.error) as error:
        return f"accepted a document that the gzip module refuses: {error}"
    if len(content) > LIMITS.message_bytes:
        return f"{len(content)} bytes are beyond the limit"
    return "" if content == expected else f"expected {expected[:100]!r}, found {content[:100]!r}"


def web_config(rng: random.Random) -> bytes:
    """A web configuration, in YAML's block style or, as JSON, in its flow style."""
    document: dict[str, object] = {}
    if rng.random() < 0.6:
        tls = {"cert_file": rng.choice(("server.crt", "server.key", "none.crt", "")), "key_file": "server.key"}
        document["tls_server_config"] = tls | rng.choice(
            (
                {},
                {"client_auth_type": "RequireAndVerifyClientCert", "client_ca_file": "server.crt"},
                {"min_version": "TLS12", "max_version": "TLS13", "prefer_server_cipher_suites": True},
                {"cipher_suites": ["TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"], "curve_preferences": ["X25519"]},
                {"client_allowed_sans": ["node1", "10.0.0.1"], "client_auth_type": "RequireAnyClientCert"},
            )
        )
    if rng.random() < 0.5:
        document["http_server_config"] = {"http2": rng.random() < 0.5, "headers": {"X-Frame-Options": "deny"}}
    if rng.random() < 0.6:
        document["basic_auth_users"] = {"prometheus": HASH, "größe": rng.choice((HASH, HASH[:-1], "plain"))}
    if rng.random() < 0.2:
        document["rate_limit"] = {"interval": "1s", "burst": 20}
    text = json.dumps(document, ensure_ascii=rng.random() < 0.5, indent=rng.choice((None, 1)))
    return (text if rng.random() < 0.5 else _block_style(document)).encode()


def _block_style(document: object, indent: str = "") -> str:
    if isinstance(document, dict):
        return "".join(f"\n{indent}{key}: {_block_style(value, indent + '  ')}" for key, value in document.items())
    return json.dumps(document)


@cache
def _folder() -> Path:
    """A folder with a certificate, in memory where the machine has such a file system."""
    memory = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(dir=memory if memory.is_dir() else None))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    self_signed(folder, "server")
    return folder


def _read_web_config(content: bytes) -> str:
    """A file is read twice alike; and whoever reads why one is refused learns no password's hash."""
    file = _folder() / "web.yml"
    file.write_bytes(content)
    try:
        first = read_web_config(file)
    except ConfigurationError as error:
        if HASH in str(error):
            return f"the error shows a hash: {error}"
        raise
    return "" if first == read_web_config(file) and HASH not in repr(first) else "read in two ways, or shows a hash"


DOCUMENTS = (
    Document("gzip", gzip_members, _read_gzip, DecodeError),
    Document("web_config", web_config, _read_web_config, ConfigurationError, share=0.02, remedy=False),
)
