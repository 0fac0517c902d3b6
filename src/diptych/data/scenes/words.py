"""A statement in words, with the thing that each word names."""

import re
from dataclasses import dataclass
from typing import TypeVar

from diptych.data.scenes.statement import Claim, Phrase, Statement
from diptych.data.vocabulary import split_words

T = TypeVar("T")
Word = tuple[str, tuple[int, ...]]  # what is written, and the things it names

NOUNS = {
    "circle": (("circle", "circles"), ("circle", "circles"), ("disc", "discs")),
    "square": (("square", "squares"),),
    "triangle": (("triangle", "triangles"),),
    "star": (("star", "stars"),),
    "cross": (("cross", "crosses"), ("cross", "crosses"), ("plus sign", "plus signs")),
    "ring": (("ring", "rings"), ("ring", "rings"), ("hoop", "hoops")),
    "diamond": (("diamond", "diamonds"), ("diamond", "diamonds"), ("rhombus", "rhombuses")),
    "heart": (("heart", "hearts"),),
    "moon": (("moon", "moons"), ("crescent", "crescents")),
    "arrow": (("arrow", "arrows"),),
    None: (("shape", "shapes"), ("object", "objects"), ("thing", "things")),
}
COLOUR_WORDS = {"purple": ("purple", "purple", "violet")}  # the others have one name each
SIZE_WORDS = {"small": ("small", "small", "little", "tiny"), "big": ("big", "large", "big", "large")}
TEXTURE_WORDS = {
    "plain": ("plain", "solid"),
    "striped": ("striped", "striped", "stripy"),
    "dotted": ("dotted", "spotted"),
    "checked": ("checked", "checked", "chequered"),
}
NUMBERS = {2: "two", 3: "three", 4: "four"}
RELATION_WORDS = {
    "left of": ("to the left of", "left of", "on the left of"),
    "right of": ("to the right of", "right of", "on the right of"),
    "above": ("above", "over", "higher up than"),
    "below": ("below", "under", "beneath"),
    "inside": ("inside", "within", "in the middle of"),
    "around": ("around", "surrounding", "all around"),
}
# The same after the thing itself was named: {its} is its or their, {it} is it or them.
RELATION_TO_IT = {
    "left of": ("to {its} left", "on {its} left", "to the left of {it}"),
    "right of": ("to {its} right", "on {its} right", "to the right of {it}"),
    "above": ("above {it}", "over {it}", "higher up"),
    "below": ("below {it}", "under {it}", "beneath {it}"),
    "inside": ("inside {it}", "within {it}", "in the middle of {it}"),
    "around": ("around {it}", "surrounding {it}", "all around {it}"),
}

# {A}, {B} and {C} are phrases, {A:is} their verb, {ab} how A is related to B, {ab:it} the same after B was named.
TEMPLATES: dict[tuple[int, tuple[str, ...]], tuple[str, ...]] = {
    (1, ()): (
        "{A}",
        "there {A:is} {A}",
        "a picture of {A}",
        "this picture shows {A}",
        "{A} on a pale background",
        "here we see {A}",
        "{A} can be seen here",
        "a drawing with {A} in it",
    ),
    (2, ()): (
        "{A} and {B}",
        "there {A:is} {A}, and there {B:is} {B}",
        "a picture of {A} and {B}",
        "this picture shows {A} together with {B}",
        "{A} along with {B}",
        "here we see {A} and {B}",
        "a drawing with both {A} and {B} in it",
    ),
    (2, ("ab",)): (
        "{A} {ab} {B}",
        "{A} {A:is} {ab} {B}",
        "there {A:is} {A} {ab} {B}",
        "{B} with {A} {ab:it}",
        "{ab} {B} there {A:is} {A}",
        "{ab} {B} {A:is} {A}",
        "a picture of {A} {ab} {B}",
        "this picture shows {A} {ab} {B}",
        "{A} can be seen {ab} {B}",
        "a drawing of {B}, and of {A} {ab:it}",
    ),
    (3, ()): (
        "{A}, {B} and {C}",
        "there {A:is} {A}, and also {B} and {C}",
        "a picture of {A}, {B} and {C}",
        "this picture shows {A} together with {B} and {C}",
        "here we see {A}, then {B}, and {C}",
    ),
    (3, ("ab",)): (
        "{A} {ab} {B}, and {C}",
        "{C}, and {A} {ab} {B}",
        "besides {C} there {A:is} {A} {ab} {B}",
        "a picture of {B} with {A} {ab:it}, and of {C}",
        "this picture shows {C}, and also {A} {ab} {B}",
        "apart from {C}, {A} can be seen {ab} {B}",
    ),
    (3, ("ab", "bc")): (
        "{A} {ab} {B}, which {B:is} {bc} {C}",
        "there {A:is} {A} {ab} {B} that {B:is} {bc} {C}",
        "a picture of {A} {ab} {B}, which {B:is} {bc} {C}",
        "{A} can be seen {ab} {B} that {B:is} {bc} {C}",
    ),
}

_SLOT = re.compile(r"\{(\w+)(?::(\w+))?\}")


@dataclass(frozen=True)
class Caption:
    """A sentence: its text, what it claims, and for each word (as `split_words` splits it) the things it names."""

    text: str
    statement: Statement
    template: str
    names: tuple[tuple[int, ...], ...]

    @property
    def words(self) -> list[str]:
        """The words that `names` goes with."""
        return split_words(self.text)


def caption(template: str, statement: Statement) -> Caption:
    """Say a statement in the words of a template."""
    claims = {"abc"[c.subject] + "abc"[c.object]: c for c in statement.claims}
    parts: list[Word] = []
    end = 0
    for slot in _SLOT.finditer(template):
        parts.append((template[end : slot.start()], ()))
        end = slot.end()
        name, form = slot.groups()
        if name in claims:
            parts.append((_relation(claims[name], statement, form), ()))
        else:
            parts.extend(_phrase(statement.phrases["ABC".index(name)], form))
    parts.append((template[end:], ()))
    text = "".join(part for part, _ in parts)
    names = tuple(named for part, named in parts for _ in split_words(part))
    return Caption(f"{text[0].upper()}{text[1:]}.", statement, template, names)


def _phrase(phrase: Phrase, form: str | None) -> list[Word]:
    """The words of a phrase, with the blanks between them, and the thing that each names."""
    many, named = phrase.count > 1, (phrase.thing,)
    if form == "is":
        return [("are" if many else "is", ())]
    noun = _choose(NOUNS[phrase.shape], phrase.style)[many]
    texture = _choose(TEXTURE_WORDS[phrase.texture], phrase.style // 3) if phrase.texture else None
    colour = _choose(COLOUR_WORDS.get(phrase.colour, (phrase.colour,)), phrase.style // 5) if phrase.colour else None
    size = _choose(SIZE_WORDS[phrase.size], phrase.style // 7) if phrase.size else None
    middle = (texture, colour) if phrase.style // 11 % 3 else (colour, texture)
    words: list[Word] = [(word, named) for word in (size, *middle, noun) if word is not None]
    if many:
        words.insert(0, (NUMBERS[phrase.count], named))
    else:
        one = phrase.style // 13 % 10
        if one in (0, 1):
            words.insert(0, ("one", named))
        else:
            if one == 2:
                words.insert(0, ("single", named))
            words.insert(0, ("an" if words[0][0][0] in "aeiou" else "a", ()))
    spaced: list[Word] = []
    for word in words:
        spaced += [(" ", ()), word] if spaced else [word]
    return spaced


def _relation(claim: Claim, statement: Statement, form: str | None) -> str:
    if form != "it":
        return _choose(RELATION_WORDS[claim.relation], claim.style)
    many = statement.phrases[claim.object].count > 1
    words = _choose(RELATION_TO_IT[claim.relation], claim.style)
    return words.format(it="them" if many else "it", its="their" if many else "its")


def _choose(choices: tuple[T, ...], style: int) -> T:
    return choices[style % len(choices)]
