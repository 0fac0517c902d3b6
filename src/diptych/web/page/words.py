"""Errors in the page's own words: what a person can do, in place of names of fields."""

import re
from typing import Any

from diptych.web.schemas import MOST_CHARACTERS, MOST_TERMS

_SAID: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), said)
    for pattern, said in (
        (
            r"expected at least one sentence or picture to look for|only subtracts",
            "There is nothing to look for: all of it is taken away. Write what a picture should show.",
        ),
        (r"expected a sentence or @picture after", "A + or − has nothing behind it. Write what to add or take away."),
        (r"terms\b.* at most", f"That is too much at once: {MOST_TERMS} terms are the most."),
        (r"where\b.* at most \d+ items", "There are too many filters: 16 are the most."),
        (
            r"more than \d+ characters|at most \d+ characters",
            f"That is too long: {MOST_CHARACTERS} letters are the most.",
        ),
        (r"a weight of|weight ", "A weight is a number from −10 to 10, and not 0."),
        (r"no such upload", "Your picture is not kept any more. Give it again, and the search goes on."),
        (
            r"expected the id of an entry|no entry with this id",
            "One of the pictures to look for is not in the index any more.",
        ),
        (
            r"not a picture of a known format",
            "This file is not a picture that can be read. JPEG, PNG, WebP and HEIC can.",
        ),
        (r"there was no picture|it is empty", "There was no picture. Choose one, and send it again."),
        (r"picture cannot be (decoded|read)", "This picture is broken, or not whole. Try another."),
        (r"words; at most (\d+) are explained", r"That sentence is too long to look into: \1 words are the most."),
        (r"a pattern has at most (\d+) stars", r"A pattern for folders and names may have \1 stars."),
        (r"expected a pattern of paths", "Write a folder or name as results show it, such as holiday/*.jpg."),
        (r"^id: .*(required|at least 1)", "Nothing was chosen. Tick some pictures first."),
        (r"^id: .*at most (\d+) items", r"\1 pictures go into one zip at most."),
        (r"took too long", "This took too long. Try again in a moment."),
        (r"are waiting", "The server has much to do just now. Try again in a moment."),
        (r"no re-ranking model", "This server has no second model to re-rank with."),
        (r"server is stopping", "The server is being stopped."),
    )
)
# The name of a field of the API before a sentence.
_FIELD = re.compile(r"^(?:file|id|model|terms|query|size|sentence|sentences): ")
_STATUSES = {
    401: "Open the address with its token, as the server printed it when it started.",
    403: "This may not be done from here.",
    404: "There is nothing at this address.",
    405: "There is nothing at this address.",
    408: "The picture came too slowly. Try again, or a smaller one.",
    413: "That is larger than this server takes. Try a smaller picture.",
    421: "The server is not known by this name. It can be allowed with --host-name.",
    500: "Something went wrong in the server. Its log says what.",
    503: "The server has much to do just now. Try again in a moment.",
}


def in_own_words(problem: object) -> str:
    """An error as the page tells it: its own sentence for what people meet, else the sentence as it is."""
    text = str(problem)
    for pattern, said in _SAID:
        found = pattern.search(text)
        if found:
            return found.expand(said) if "\\" in said else said
    text = _FIELD.sub("", text)
    return f"{text[:1].upper()}{text[1:]}" + ("" if text.endswith((".", "!", "?")) else ".")


def of_status(status: int, sentence: str) -> str:
    """What a status means, where nothing better is known."""
    said = in_own_words(sentence)
    plain = f"{sentence[:1].upper()}{sentence[1:]}"
    return said if said.rstrip(".") != plain.rstrip(".") else _STATUSES.get(status, said)


def of_field(error: Any) -> str:
    """What is wrong with a request, as `pydantic` has it, in a sentence that `in_own_words` may put better."""
    place = " ".join(str(part) for part in error["loc"] if part not in ("TextTerm", "PictureTerm"))
    return f"{place}: {error['msg'][:1].lower()}{error['msg'][1:]}"
