"""Digest of a delta series' identity: 16 bytes, the same in every process."""

import hashlib
import json
from typing import Final

from kernelcast.columnar import SeriesIdentity

DIGEST_BYTES: Final = 16


def digest(identity: SeriesIdentity) -> bytes:
    """Hash everything that distinguishes two series; 128 bits, so that collisions can be neglected.

    The description is left out, because it may change during a series' life. A snapshot keeps digests instead of
    attributes: after a restart, and on another replica with other series numbers, totals are found by their digest.
    """
    text = json.dumps(
        [
            identity.resource,
            [identity.scope_name, identity.scope_version, identity.scope_attributes, identity.schema_url],
            [identity.name, identity.unit, int(identity.type), identity.monotonic],
            identity.attributes,
        ],
        ensure_ascii=False,
        separators=(",", ":"),
    )
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=DIGEST_BYTES).digest()
