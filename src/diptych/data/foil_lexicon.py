"""The tables of foils, ready to be looked up: a noun by any of its forms, a verb by its endings."""

from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

from diptych.data import foil_nouns as tables
from diptych.data import foil_words as words


class Option(NamedTuple):
    """A word that may come in another's place, and what it means: the same for all words of one thing."""

    text: str
    meaning: str


class Noun(NamedTuple):
    """A form of a noun. number: one, several, uncounted; either: one or uncounted; same: one or several."""

    thing: str
    family: str
    number: str
    one: str
    several: str
    options: dict[str, tuple[Option, ...]]

    @property
    def alive(self) -> bool:
        """Whether it can sit down, and not only be put down."""
        return self.family in ("people", "animals", "athletes")


def meaning(text: str) -> str:
    """One name for all words that say the same: "sofa", "couch" and "couches" are couch."""
    return _MEANINGS.get(text, text)


@cache
def _options(texts: tuple[str, ...]) -> tuple[Option, ...]:
    return tuple(Option(text, meaning(text)) for text in texts)


def options_of(
    table: Mapping[str, tuple[str, ...]], text: str, form: str = "", instead: tuple[str, ...] = ()
) -> tuple[Option, ...]:
    """What a table puts in place of a word; form: of verbs, which ending they take; instead: of the table's."""
    chosen = instead or table.get(text, ())
    if form:
        chosen = _in_form(chosen, form)
    return _options(chosen)


@cache
def _in_form(verbs: tuple[str, ...], form: str) -> tuple[str, ...]:
    return tuple(_FORMS[verb][form] for verb in verbs)


def _plural(word: str) -> str:
    return word + "s"


class _Row(NamedTuple):
    thing: str
    forms: list[tuple[str, str, str]]  # number, one, several
    drawn: bool


def _row(line: str) -> _Row:
    forms = []
    for word in line.removeprefix("-").split():
        bare = word.lstrip("~=").replace("_", " ")
        one, _, several = bare.partition("/")
        if word.startswith("~"):
            forms.append(("uncounted", one, ""))
        else:
            forms.append(("either" if word.startswith("=") else "one", one, several or _plural(one)))
    return _Row(forms[0][1], forms, not line.startswith("-"))


def _nouns() -> dict[str, Noun]:
    nouns: dict[str, Noun] = {}
    together = [{word.replace("_", " ") for word in line.split()} for line in tables.TOGETHER]
    for family, lines in tables.OBJECTS.items():
        rows = [_row(line) for line in lines]
        for row in rows:
            options: dict[str, list[Option]] = {"one": [], "several": [], "uncounted": []}
            for other in rows:
                apart = not any({row.thing, other.thing} <= group for group in together)
                if other.drawn and other is not row and apart:
                    number, one, several = other.forms[0]
                    if number != "uncounted":
                        options["one"].append(Option(one, other.thing))
                        options["several"].append(Option(several, other.thing))
                    if number != "one":
                        options["uncounted"].append(Option(one, other.thing))
            ready = {number: tuple(found) for number, found in options.items()}
            for number, one, several in row.forms:
                if one == several:
                    nouns[one] = Noun(row.thing, family, "same", one, several, ready)
                    continue
                nouns[one] = Noun(row.thing, family, number, one, several, ready)
                if several:
                    nouns[several] = Noun(row.thing, family, "several", one, several, ready)
    nouns.update(_people())
    return nouns


def _people() -> dict[str, Noun]:
    plurals = tables.PLURAL_PEOPLE | tables.NEUTRAL_PEOPLE
    singulars = {several: one for one, several in plurals.items()}
    synonyms = _synonyms()
    people = {}
    for text in dict.fromkeys([*tables.PEOPLE, *plurals, *singulars]):
        one = singulars.get(text, text)
        found = tuple(
            Option(word, synonyms.get(word, singulars.get(word, word))) for word in tables.PEOPLE.get(text, ())
        )
        number = "several" if text in singulars else "one"
        none: tuple[Option, ...] = ()
        options = {"one": none, "several": none, "uncounted": none, number: found}
        people[text] = Noun(synonyms.get(text, one), "people", number, one, plurals.get(one, ""), options)
    return people


def _synonyms() -> dict[str, str]:
    lines = [[word.replace("_", " ") for word in line.split()] for line in words.SYNONYMS]
    return {word: line[0] for line in lines for word in line}


def _phrases() -> dict[str, list[tuple[str, ...]]]:
    """Names of several words, by their first; the longest comes first."""
    found: dict[str, set[tuple[str, ...]]] = {}
    for text in (*NOUNS, *words.RELATIONS, *words.WHOLE):
        phrase = tuple(text.split())
        if len(phrase) > 1:
            found.setdefault(phrase[0], set()).add(phrase)
    return {first: sorted(phrases, key=lambda phrase: (-len(phrase), phrase)) for first, phrases in found.items()}


_FORMS = {
    base: {"s": ending_s, "ing": ending_ing} for base, ending_s, ending_ing in (line.split() for line in words.VERBS)
}
VERB_FORMS: dict[str, tuple[str, str]] = {
    text: (base, form) for base, forms in _FORMS.items() for form, text in forms.items()
}
NOUNS: dict[str, Noun] = _nouns()
PHRASES = _phrases()
_SYNONYMS = _synonyms()
_MEANINGS: dict[str, str] = {
    **_SYNONYMS,
    **{text: _SYNONYMS.get(base, base) for text, (base, _) in VERB_FORMS.items()},
    **{text: noun.thing for text, noun in NOUNS.items()},
}
# All words that a rule may change; a sentence is looked through for these first.
CHANGEABLE: frozenset[str] = frozenset(
    [*NOUNS, *VERB_FORMS, *words.RELATIONS, *words.COLOURS, *words.NUMBERS, *words.ATTRIBUTES]
)
