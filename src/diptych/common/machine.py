"""What the machine refuses (a full disk, a file without permission, too little memory), said in one sentence."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from diptych.common.errors import DiptychError

# How libraries say that memory is short; torch has no error of its own for the CPU.
_NO_MEMORY = ("not enough memory", "out of memory", "can't allocate memory", "cannot allocate memory")
# How libraries that write files say that it failed, in errors of their own.
_NOT_WRITTEN = ("os error", "I/O error", "PytorchStreamWriter", "file write failed", "iostream error")


def machine_error(error: BaseException) -> str | None:
    """One sentence for an error that is the machine's, and no bug; None for any other."""
    if isinstance(error, DiptychError):
        return str(error)
    if isinstance(error, OSError):
        reason = (error.strerror or str(error) or type(error).__name__).strip().partition("\n")[0]
        names = [os.fsdecode(n) for n in (error.filename, error.filename2) if isinstance(n, str | bytes) and n]
        return f"{names[-1]}: {reason}" if names else reason
    said = str(error)
    if isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and any(sign in said.lower() for sign in _NO_MEMORY)
    ):
        return "there is not enough memory for this; take smaller batches, pictures or models"
    return None


def torch_reason(error: BaseException) -> str:
    """Why torch could not read a file, in one line, and without its advice to unpickle whatever is in it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not any("weights_only" in line for line in lines):
        return lines[0] if lines else type(error).__name__
    told = re.search(r"WeightsUnpickler error:\s*(?:Unsupported global: )?([^\n.]*(?:\.\w[^\n.]*)*)", str(error))
    return f"it is no file of tensors ({told[1].strip()})" if told else "it is no file of tensors"


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Whatever fails while a file or folder is written is one sentence that names it."""
    try:
        yield
    except OSError as error:
        raise DiptychError(f"cannot be written: {error.strerror or error}", where=path) from None
    except Exception as error:  # libraries that write have errors of their own
        if not any(sign in str(error) for sign in _NOT_WRITTEN):
            raise
        raise DiptychError(f"cannot be written: {str(error).partition(chr(10))[0]}", where=path) from None
