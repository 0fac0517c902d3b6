"""FAISS, where it is installed."""

from typing import Any

from diptych.common.errors import DiptychError


class DamagedApproximate(Exception):  # noqa: N818
    """An approximate index is not as it was written; whoever searches does without it."""


def faiss_library() -> Any:
    """The module, or an error that says how to get it."""
    try:
        import faiss
    except ImportError:
        raise DiptychError(
            "more than 200,000 vectors are searched through FAISS; install it with: pip install 'diptych[search]'"
        ) from None
    return faiss
