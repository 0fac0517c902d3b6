"""Diptych matches pictures and sentences, and shows why.

    from diptych import Matcher

    matcher = Matcher.from_pretrained("default")
    scores = matcher.similarity(["dog.jpg", "boat.jpg"], ["a dog on the beach"])

Names are imported when they are first used, so that `import diptych` is quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "Collection": "diptych.data.collection",
    "DiptychError": "diptych.common.errors",
    "Index": "diptych.search.index",
    "Kept": "diptych.matchers.kept",
    "Matcher": "diptych.matchers.base",
    "build_matcher": "diptych.matchers.catalog",
}
__all__ = ["Collection", "DiptychError", "Index", "Kept", "Matcher", "__version__", "build_matcher"]

if TYPE_CHECKING:
    from diptych.common.errors import DiptychError
    from diptych.data.collection import Collection
    from diptych.matchers.base import Matcher
    from diptych.matchers.catalog import build_matcher
    from diptych.matchers.kept import Kept
    from diptych.search.index import Index


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'diptych' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
