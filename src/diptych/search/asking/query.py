"""What is searched for: sentences and pictures with + and - and weights; and filters, as people write them."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from PIL import Image

from diptych.common.errors import DiptychError
from diptych.data.collection import Open
from diptych.data.pictures import is_picture
from diptych.data.raw import is_raw
from diptych.search.stores.store import OWN_FIELDS, Condition, Kind, Value
from diptych.search.stores.values import cell_value

Picture = Image.Image | Path | Open
LONGEST_FILTER = 1000
_WEIGHT = re.compile(r"^(\d+(?:\.\d+)?|\.\d+):\s*(?=\S)")
_WORDS = re.compile(r'(?<!\S)"([^"]*[^"\s][^"]*)"(?!\S)|(\S+)')
_FILTER = re.compile(r"^\s*([^<>=!~]*[^<>=!~\s])\s*(<=|>=|!=|==|=|<|>|~)\s*(.*?)\s*$", re.DOTALL)
Operator = Literal["=", "!=", "<", "<=", ">", ">=", "matches"]
_OPERATORS: dict[str, Operator] = {
    "=": "=", "==": "=", "!=": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">=", "~": "matches",
}  # fmt: skip


@dataclass(frozen=True)
class Term:
    """One part of a query: a sentence, a picture, or a vector (K, d); negative weights push away."""

    value: str | Picture | np.ndarray
    weight: float = 1.0

    @property
    def kind(self) -> Kind | None:
        """What it is; None for a vector."""
        if isinstance(self.value, np.ndarray):
            return None
        return "sentence" if isinstance(self.value, str) else "picture"


@dataclass(frozen=True)
class SearchQuery:
    """Terms that add up; at least one weight is positive."""

    terms: tuple[Term, ...]

    def __post_init__(self) -> None:
        if not self.terms:
            raise DiptychError("the query is empty; expected a sentence or a picture")
        empty = any(isinstance(term.value, str) and not term.value.strip() for term in self.terms)
        if empty:
            raise DiptychError("the query has an empty sentence")
        if not any(term.weight > 0 for term in self.terms):
            raise DiptychError("the query only subtracts; expected at least one sentence or picture to look for")

    @classmethod
    def of_sentence(cls, text: str = "anything") -> "SearchQuery":
        """A query of one sentence."""
        return cls((Term(text),))

    @property
    def weights(self) -> np.ndarray:
        """(terms,) float32."""
        return np.array([term.weight for term in self.terms], np.float32)


Asked = str | Picture | np.ndarray | SearchQuery | Sequence[Term]


def as_query(asked: Asked) -> SearchQuery:
    """A sentence, a picture (an image, a Path or a function that opens one), a vector, or several terms, as a query."""
    if isinstance(asked, SearchQuery):
        return asked
    if isinstance(asked, Sequence) and not isinstance(asked, str):
        return SearchQuery(tuple(asked))
    return SearchQuery((Term(asked),))


def parse_terms(words: Sequence[str]) -> list[Term]:
    """Words of a command line to terms: `two dogs + 2:snow - @grass.jpg`.

    + and - stand alone between terms. With them, a term may begin with a weight and a colon, and @ names a picture.
    Without them the words are one sentence as it stands.
    """
    if not any(word in ("+", "-") for word in words):
        return [Term(" ".join(words))] if words else []
    terms: list[Term] = []
    sign, gathered = 1.0, list[str]()
    for word in [*words, "+"]:
        if word not in ("+", "-"):
            gathered.append(word)
            continue
        if gathered:
            terms.append(_term(" ".join(gathered), sign))
        elif terms or sign < 0:
            raise DiptychError(f"query {' '.join(words)!r}: expected a sentence or @picture after + and -")
        sign, gathered = (1.0 if word == "+" else -1.0), []
    return terms


def parse_line(line: str) -> SearchQuery:
    """A line of text as a query: one sentence, or several terms where it begins with "+ " or "- "."""
    text = line.strip()
    if text.startswith(("+ ", "- ")):
        return SearchQuery(tuple(parse_terms([part for part in re.split(r"\s+([+-])\s+|\s+", " " + text) if part])))
    return as_query(text)


def with_pictures(terms: Sequence[Term]) -> list[Term]:
    """Terms as a command line means them: what names a picture is that picture, which must be there.

    That is @ and a path, a path that begins with /, ./, ../ or ~/, and a word that ends like a picture's name.
    """
    named = []
    for term in terms:
        value = _picture_named(term.value) if isinstance(term.value, str) else term.value
        if isinstance(value, Path) and not value.is_file():
            what = "a folder; expected a picture" if value.is_dir() else "no such picture"
            raise DiptychError(what, where=value)
        named.append(Term(term.value if value is None else value, term.weight))
    return named


def _picture_named(text: str) -> Path | None:
    text = text.strip()
    path = text[1:].strip() if text.startswith("@") else text
    is_path = text.startswith(("@", "/", "./", "../", "~/"))
    is_word = not re.search(r"\s", text) and _is_named_like_picture(text)
    return Path(path).expanduser() if path and (is_path or is_word) else None


def _is_named_like_picture(text: str) -> bool:
    return is_picture(text) or is_raw(text) or text.lower().endswith((".heic", ".heif"))


def parse_typed(line: str) -> list[Term]:
    """What a person types in a box, as `parse_terms` has it of a command line: `beach + dog - people` is three terms.

    As there, what stands in double quotes is one word: `"a man - a woman"` is a sentence.
    """
    return parse_terms(typed_words(line))


def typed_words(line: str) -> list[str]:
    """The words of a line; what stands in double quotes is one of them."""
    return [quoted.strip() or word for quoted, word in _WORDS.findall(line)]


def _term(text: str, sign: float) -> Term:
    weight = _WEIGHT.match(text)
    if weight:
        text = text[weight.end() :]
    value: str | Path = Path(text[1:].strip()).expanduser() if text.startswith("@") else text
    return Term(value, sign * (float(weight[1]) if weight else 1.0))


def parse_filter(text: str) -> Condition:
    """A filter such as `date>=2024-01-01`, `album=holiday`, `stars>3` or `camera~Canon*`.

    A value that reads like a number is one, unless it stands in quotes.
    """
    match = _FILTER.match(text) if len(text) <= LONGEST_FILTER else None  # it takes the square of the length
    if match is None or not match[3]:
        raise DiptychError(f"filter {text[:80]!r}: expected NAME and =, !=, <, <=, >, >= or ~ and a value")
    name, operator, written = match[1].strip(), _OPERATORS[match[2]], match[3]
    value: Value
    if len(written) > 1 and written[0] == written[-1] and written[0] in "\"'":
        value = written[1:-1]
    elif operator == "matches" or name in OWN_FIELDS:
        value = written
    else:
        value = cell_value(written)
    return Condition(name, operator, value)


def path_filter(pattern: str) -> Condition:
    """A pattern of paths; one that begins neither with / nor with * fits at the start of any folder or name."""
    return Condition("path", "matches", pattern if pattern.startswith(("/", "*")) else f"*/{pattern}")
