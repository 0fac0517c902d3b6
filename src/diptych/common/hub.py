"""Models of Hugging Face: whatever keeps one from being had or read is one sentence that says what to do."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from diptych.common.errors import DiptychError

_OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
_NO_HUB = ("connect", "offline", "outgoing traffic", "resolve", "timed out", "ConnectionError", "Max retries")


@contextmanager
def from_hub(name: str | Path, what: str = "a Hugging Face model") -> Iterator[None]:
    """Say in one sentence why what a folder or a name of the hub stands for could not be had.

    what: what was expected there
    """
    try:
        import transformers
    except ImportError:
        raise DiptychError("needs the package transformers; install diptych[hub]", where=name) from None
    transformers.utils.logging.disable_progress_bar()
    try:
        yield
    except (DiptychError, MemoryError):
        raise
    except ImportError as error:
        reason = next((line for line in str(error).splitlines() if line.strip()), str(error))
        raise DiptychError(f"needs a package that is not installed: {reason.strip()}", where=name) from None
    except Exception as error:  # a broken file can make its readers raise anything
        raise DiptychError(hub_sentence(name, error, what), where=name) from None


def hub_sentence(name: str | Path, error: BaseException, what: str) -> str:
    """What is missing, and what to do about it."""
    reason = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    if Path(name).is_dir():
        return f"{what} is expected in this folder, and cannot be read: {reason}"
    offline = next((key for key in _OFFLINE if os.environ.get(key, "").upper() in ("1", "ON", "YES", "TRUE")), None)
    if offline is not None:
        unreachable = f"is not in this machine's cache, and {offline} is set, so that the hub is not asked"
        return f"{what} of this name {unreachable}; unset it, or give a folder that holds the model"
    if any(sign in f"{type(error).__name__} {error}" for sign in _NO_HUB):
        unreachable = "is not in this machine's cache, and the hub cannot be reached"
        return f"{what} of this name {unreachable}; connect once to fetch it, or give a folder that holds the model"
    return f"neither a folder that holds {what} nor a name of the hub that can be read: {reason}"
