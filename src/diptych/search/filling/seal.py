"""What the digest of a stamp says besides the content: which columns were given for it, and which were read from it.

CONTENT, CONTENT~GIVEN or CONTENT~GIVEN~READ. The first is a hash of the content, the second one of the columns that a
table gave, and the third says what was looked for in the picture itself: `1` its EXIF, `t` what is written in it.
"""

import hashlib
import json

from diptych.search.stores.store import Value

# What is read of every picture now; where it grows, pictures of older indexes are looked at again.
READ = "1"
TEXT = "t"


def content_of(digest: str) -> str:
    """The hash of the content."""
    return digest.partition("~")[0]


def given_of(digest: str) -> str:
    """The hash of the columns that were given; empty where none were."""
    return [*digest.split("~"), ""][1]


def read_of(digest: str) -> str:
    """What was looked for in the picture; empty where nothing was."""
    return [*digest.split("~"), "", ""][2]


def seal(content: str, given: str, read: str) -> str:
    """A digest of its parts."""
    return "~".join([content, given, read] if read else [content, given] if given else [content])


def digest_with(digest: str, columns: dict[str, Value] | None) -> str:
    """A digest whose part for given columns is that of `columns`."""
    if not columns:
        return seal(content_of(digest), "", read_of(digest))
    text = json.dumps(columns, sort_keys=True, ensure_ascii=False)
    given = hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
    return seal(content_of(digest), given, read_of(digest))


def digest_read(digest: str, read: str) -> str:
    """A digest that says that more was looked for."""
    return seal(content_of(digest), given_of(digest), "".join(sorted({*read_of(digest), *read})))
