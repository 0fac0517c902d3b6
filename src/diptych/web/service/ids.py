"""Names of entries for the outside: they can be given back, but tell nothing of the paths on this machine."""

import base64
import hashlib
import re
import secrets
from contextlib import suppress

from diptych.common.errors import DiptychError
from diptych.search.index import Index

_ID = re.compile(r"[A-Za-z0-9_-]{17,12000}")
_TAG = 12
SECRET = "serve-secret"


class Ids:
    """Keys to ids and back, under a secret; an id that was not made here means nothing.

    The first bytes are a keyed hash of the key, the rest is the key under a stream of bytes that hangs on the hash:
    the same key always has the same id, and nobody without the secret can make or read one.
    """

    def __init__(self, secret: bytes) -> None:
        self._tag_secret = hashlib.blake2b(secret, person=b"tag").digest()
        self._stream_secret = hashlib.blake2b(secret, person=b"stream").digest()

    def of(self, key: str) -> str:
        """The id of a key."""
        data = key.encode()
        tag = self._tag(data)
        return base64.urlsafe_b64encode(tag + self._mixed(data, tag)).rstrip(b"=").decode()

    def key(self, id: str) -> str | None:
        """The key of an id; None where it was not made here."""
        if not _ID.fullmatch(id):
            return None
        try:
            raw = base64.urlsafe_b64decode(id + "=" * (-len(id) % 4))
            key = self._mixed(raw[_TAG:], raw[:_TAG]).decode()
        except ValueError:
            return None
        return key if self.of(key) == id else None

    def _tag(self, data: bytes) -> bytes:
        return hashlib.blake2b(data, key=self._tag_secret, digest_size=_TAG).digest()

    def _mixed(self, data: bytes, tag: bytes) -> bytes:
        stream = b"".join(
            hashlib.blake2b(tag + block.to_bytes(4), key=self._stream_secret).digest()
            for block in range(-(-len(data) // 64))
        )
        return (int.from_bytes(data) ^ int.from_bytes(stream[: len(data)])).to_bytes(len(data))


def ids_of(index: Index) -> Ids:
    """The ids of an index, under a secret that it keeps, so that they last; made anew where it cannot be written."""
    known = index.store.properties.get(SECRET)
    if known is None:
        known = secrets.token_hex(16)
        with suppress(DiptychError):
            index.store.set_properties({SECRET: known})
    return Ids(hashlib.blake2b(known.encode()).digest())
