"""The one exception that is shown to people without a traceback."""

from difflib import get_close_matches


class DiptychError(Exception):
    """Bad input, said in one sentence that names the file or field and what was expected.

    The command line prints the sentence and exits with status 1; anything else is a bug and keeps its traceback.

    what: what was found and expected
    where: the file, folder, row or field that it was found in; the sentence begins with it, unless it is None

    >>> Matcher.from_pretrained("./nowhere")
    Traceback (most recent call last):
    ...
    diptych.common.errors.DiptychError: ./nowhere: no such folder or model; expected ...
    """

    def __init__(self, what: str, where: object = None) -> None:
        self.what = what
        self.where = None if where is None else str(where)
        super().__init__(what if where is None else f"{where}: {what}")

    def within(self, place: object) -> str:
        """The sentence for one who knows of `place` already: of where it was found, only what lies inside is named."""
        if self.where is None or self.where == str(place):
            return self.what
        for border in (": ", "/"):  # fields of a file, files of a folder
            if self.where.startswith(f"{place}{border}"):
                return f"{self.where.removeprefix(f'{place}{border}')}: {self.what}"
        return str(self)


def nearest(word: str, valid: list[str]) -> str:
    """A hint that names the valid word closest to a wrong one, or lists them all when none is close."""
    close = get_close_matches(str(word), valid, n=1, cutoff=0.5)
    if close:
        return f"did you mean {close[0]!r}?"
    return "expected one of " + ", ".join(repr(v) for v in sorted(valid))
