"""The one exception that is shown to people without a traceback."""

from difflib import get_close_matches


class DiptychError(Exception):
    """Bad input, said in one sentence that names the file or field and what was expected.

    The command line prints the sentence and exits with status 1; anything else is a bug and keeps its traceback.

    >>> Matcher.from_pretrained("./nowhere")
    Traceback (most recent call last):
    ...
    diptych.common.errors.DiptychError: ./nowhere: no such folder; expected one that ...
    """


def nearest(word: str, valid: list[str]) -> str:
    """A hint that names the valid word closest to a wrong one, or lists them all when none is close."""
    close = get_close_matches(word, valid, n=1, cutoff=0.5)
    if close:
        return f"did you mean {close[0]!r}?"
    return "expected one of " + ", ".join(repr(v) for v in sorted(valid))
