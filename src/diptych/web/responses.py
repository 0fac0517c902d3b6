"""Errors as every part of the server tells them: {"error": one sentence}."""

from starlette.responses import JSONResponse

NEEDS_TOKEN = "this needs the token that the server printed when it started"


def problem(status: int, sentence: str, headers: dict[str, str] | None = None) -> JSONResponse:
    """An error as every part of the server tells it."""
    return JSONResponse({"error": sentence.encode("utf-8", "replace").decode()}, status, headers)


def unauthorised(sentence: str = NEEDS_TOKEN) -> JSONResponse:
    """That a token is needed."""
    return problem(401, sentence, {"WWW-Authenticate": "Bearer"})
