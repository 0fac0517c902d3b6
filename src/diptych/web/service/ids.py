"""Names of entries for the outside: they can be given back, but tell nothing of the paths on this machine."""

import base64
import hashlib
import re
import secrets
from contextlib import suppress

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESSIV

from diptych.common.errors import DiptychError
from diptych.search.index import Index

SECRET = "serve-secret"
_ID = re.compile(r"[A-Za-z0-9_-]{23,12000}")


class Ids:
    """Keys to ids and back, under a secret; an id that was not made here means nothing.

    An id is its key under AES-SIV (RFC 5297): the same key always has the same id, and nobody without the secret can
    make or read one.
    """

    def __init__(self, secret: bytes) -> None:
        self._cipher = AESSIV(hashlib.blake2b(secret).digest())

    def of(self, key: str) -> str:
        """The id of a key."""
        return base64.urlsafe_b64encode(self._cipher.encrypt(key.encode(), None)).rstrip(b"=").decode()

    def key(self, id: str) -> str | None:
        """The key of an id; None where it was not made here."""
        if not _ID.fullmatch(id):
            return None
        try:
            key = self._cipher.decrypt(base64.urlsafe_b64decode(id + "=" * (-len(id) % 4)), None).decode()
        except (ValueError, InvalidTag):
            return None
        # Of the last sign, base64 leaves some bits open: only one way to write an id is the id.
        return key if self.of(key) == id else None


def secret_of(index: Index) -> str:
    """The secret of an index, which it keeps, so that ids last; made anew where it cannot be written."""
    known = index.store.properties.get(SECRET)
    if known is None:
        known = secrets.token_hex(16)
        with suppress(DiptychError):
            index.store.set_properties({SECRET: known})
    return known


def ids_of(index: Index) -> Ids:
    """The ids of an index, under its own secret."""
    return Ids(secret_of(index).encode())
