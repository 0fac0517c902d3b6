"""Errors as every part of the server tells them: {"error": one sentence}."""

import re

from starlette.responses import JSONResponse

NEEDS_TOKEN = "this needs the token that the server printed when it started"


# The folders of an absolute path within a sentence.
_FOLDERS = re.compile(r"(?<![^\s'\"(\[])/(?:[^/:'\"\n]+/)+")


def problem(status: int, sentence: str, headers: dict[str, str] | None = None) -> JSONResponse:
    """An error as every part of the server tells it; of paths on this machine only the last part is shown."""
    shown = _FOLDERS.sub("", sentence).encode("utf-8", "replace").decode()
    return JSONResponse({"error": shown}, status, headers)


def unauthorised(sentence: str = NEEDS_TOKEN) -> JSONResponse:
    """That a token is needed."""
    return problem(401, sentence, {"WWW-Authenticate": "Bearer"})
