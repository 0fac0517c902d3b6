"""Errors as every part of the server tells them: {"error": one sentence}."""

import re

from starlette.responses import JSONResponse

NEEDS_TOKEN = "this needs the token that the server printed when it started"


# The folders of an absolute path within a sentence; what follows a scheme, a name or a dot is no absolute path.
_FOLDERS = re.compile(r"(?:(?<![\w:/.~%+-])|(?<=\bfile://))/(?:[^/:'\"\n]+/)+")


def problem(status: int, sentence: str, headers: dict[str, str] | None = None) -> JSONResponse:
    """An error as every part of the server tells it; of paths on this machine only the last part is shown."""
    return JSONResponse({"error": without_folders(sentence)}, status, headers)


def without_folders(sentence: str) -> str:
    """A sentence for those who need not know where things are on this machine: of paths, the last part.

    >>> without_folders("/home/me/pictures/i.db: no such index any more")
    'i.db: no such index any more'
    """
    return _FOLDERS.sub("", sentence).encode("utf-8", "replace").decode()


def unauthorised(sentence: str = NEEDS_TOKEN) -> JSONResponse:
    """That a token is needed."""
    return problem(401, sentence, {"WWW-Authenticate": "Bearer"})
