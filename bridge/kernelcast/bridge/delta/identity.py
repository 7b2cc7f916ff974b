"""A delta series' identity in 16 bytes that are the same in every process."""

import hashlib
import json
from typing import Final

from kernelcast.columnar import SeriesIdentity

DIGEST_BYTES: Final = 16


def digest(identity: SeriesIdentity) -> bytes:
    """A hash of everything that tells two series apart; 128 bits, so that two never meet by chance.

    Not of the description, which may change in a series' life. A snapshot keeps digests, not attributes: a restart, or
    another replica with other series numbers, finds its totals by them.
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
