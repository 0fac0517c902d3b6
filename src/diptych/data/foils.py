"""Foils: a sentence with one word changed by rule, so that it is no longer true of its picture."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from diptych.data import foil_words as words
from diptych.data.foil_lexicon import CHANGEABLE, NOUNS, PHRASES, VERB_FORMS, Noun, Option, meaning, options_of

KINDS = ("object", "colour", "number", "attribute", "action", "relation", "swap")
_WORD = re.compile(r"[A-Za-z0-9]+(?:['’-][A-Za-z0-9]+)*")
_MOVES = frozenset("walk run fly drive ride ski surf skateboard snowboard travel climb swim jump".split())
_POSTURES = frozenset("sit stand lie lay rest lean run walk sleep jump".split())


@dataclass(frozen=True)
class Foil:
    """A changed sentence: what kind of change it is, the word that was there and the one that is there now.

    A swap exchanges two words: `was` is the one that stood first, `becomes` the other.
    """

    text: str
    kind: str
    was: str
    becomes: str


class _Change(NamedTuple):
    """Words to be replaced, each with what comes in its place; more than one for an exchange."""

    at: int
    options: tuple[str, ...]
    other: int = -1
    other_becomes: str = ""


def foil(sentence: str, rng: np.random.Generator, others: Iterable[str] = ()) -> Foil | None:
    """One drawn change: first its kind, of those that apply, then its place and word; None where no rule applies.

    others: further sentences that are true of the same picture; no word that they say is put in

    >>> foil("A dog sleeps", np.random.default_rng(0)).kind in ("object", "action")
    True
    """
    read = _Sentence(sentence)
    changes = read.changes(_said(others))
    if not changes:
        return None
    kinds = tuple(changes)
    kind = kinds[int(rng.random() * len(kinds))]
    return read.drawn(kind, changes[kind], rng)


def foils(sentence: str, rng: np.random.Generator, others: Iterable[str] = ()) -> list[Foil]:
    """One foil of each kind that applies, in the order of KINDS."""
    read = _Sentence(sentence)
    return [read.drawn(kind, found, rng) for kind, found in read.changes(_said(others)).items()]


def _said(sentences: Iterable[str]) -> set[str]:
    return {meaning(text) for sentence in sentences for text in _Sentence(sentence).texts}


class _Sentence:
    """A sentence cut into words, in lower case, where "fire hydrant" and "in front of" are one."""

    def __init__(self, sentence: str) -> None:
        self.sentence = sentence
        self.texts: list[str] = []
        self.starts: list[int] = []
        self.ends: list[int] = []
        found = [(match.group().lower(), match.start(), match.end()) for match in _WORD.finditer(sentence)]
        at = 0
        while at < len(found):
            text, start, end = found[at]
            length = 1
            for phrase in PHRASES.get(text, ()):
                last = at + len(phrase) - 1
                # Only spaces between its words: "hot, dog" is not one.
                if last < len(found) and tuple(sentence[start : found[last][2]].lower().split()) == phrase:
                    text, end, length = " ".join(phrase), found[last][2], len(phrase)
                    break
            self.texts.append(text)
            self.starts.append(start)
            self.ends.append(end)
            at += length

    def changes(self, said: set[str]) -> dict[str, list[_Change]]:
        """What could be changed, by kind; said: meanings that are true of the picture, besides this sentence's."""
        said = said | {meaning(text) for text in self.texts}
        found: dict[str, list[_Change]] = {}
        for at, text in enumerate(self.texts):
            if text not in CHANGEABLE:
                continue
            for kind, options in self._options(at, text):
                free = tuple([option.text for option in options if option.meaning not in said])
                if free:
                    found.setdefault(kind, []).append(_Change(at, free))
        swaps = [*self._noun_swaps(), *self._colour_swaps()]
        if swaps:
            found["swap"] = swaps
        return {kind: found[kind] for kind in KINDS if kind in found}

    def drawn(self, kind: str, changes: list[_Change], rng: np.random.Generator) -> Foil:
        change = changes[int(rng.random() * len(changes))]
        becomes = change.options[int(rng.random() * len(change.options))]
        edits = self._replaced(change.at, becomes)
        was = self.sentence[self.starts[change.at] : self.ends[change.at]]
        becomes = edits[-1][2]
        if change.other >= 0:
            edits += self._replaced(change.other, change.other_becomes)
        text, end = [], 0
        for start, stop, new in edits:
            text += [self.sentence[end:start], new]
            end = stop
        return Foil("".join([*text, self.sentence[end:]]), kind, was, becomes)

    def _replaced(self, at: int, new: str) -> list[tuple[int, int, str]]:
        """The edits (start, end, new text) that put a word in place of another, with its article mended."""
        start, end = self.starts[at], self.ends[at]
        edits = [(start, end, _cased(new, self.sentence[start:end]))]
        if at and self.texts[at - 1] in ("a", "an"):
            article = "an" if _takes_an(new) else "a"
            if article != self.texts[at - 1]:
                before = self.sentence[self.starts[at - 1] : self.ends[at - 1]]
                article = article.capitalize() if before[0].isupper() else article
                edits.insert(0, (self.starts[at - 1], self.ends[at - 1], article))
        return edits

    def _next(self, at: int) -> str:
        """The word after this one in the same clause; "" at its end."""
        if at + 1 == len(self.texts) or not self.sentence[self.ends[at] : self.starts[at + 1]].isspace():
            return ""
        return self.texts[at + 1]

    def _before(self, at: int) -> str:
        return self.texts[at - 1] if at else ""

    def _options(self, at: int, text: str) -> Iterable[tuple[str, tuple[Option, ...]]]:
        if text in NOUNS:
            noun = NOUNS[text]
            if self._is_replaceable(at, noun):
                yield "object", noun.options[self._number(at, noun)]
        elif text in VERB_FORMS:
            yield "action", self._verbs(at, text)
        if text in words.RELATIONS:
            yield "relation", self._relations(at, text)
        for kind, table in (("colour", words.COLOURS), ("number", words.NUMBERS), ("attribute", words.ATTRIBUTES)):
            if text in table and self._is_plain(at, text):
                yield kind, options_of(table, text)

    def _is_plain(self, at: int, text: str) -> bool:
        after = self._next(at)
        return after not in words.NOT_BEFORE.get(text, ()) and self._before(at) not in words.NOT_AFTER.get(text, ())

    def _ends_a_name(self, at: int) -> bool:
        """Whether the noun here stands for itself, and is no half of a longer name."""
        after = self._next(at)
        return (
            not after
            or after in words.AFTER_A_NOUN
            or after in VERB_FORMS
            or (after.endswith(("ing", "ed")) and after not in words.NOT_VERBS)
        )

    def _is_replaceable(self, at: int, noun: Noun) -> bool:
        if noun.family == "sports":
            return not self._ends_a_name(at) or self._before(at) in words.BEFORE_A_SPORT
        if noun.family == "places to be in" and "on" in self.texts[max(0, at - 3) : at]:
            return False
        return self._ends_a_name(at)

    def _number(self, at: int, noun: Noun) -> str:
        """Whether the noun here is one, several or uncounted; its form or, where that leaves it open, its article."""
        if noun.number in ("one", "several", "uncounted"):
            return noun.number
        article = any(text in ("a", "an", "one", "the", "this") for text in self.texts[max(0, at - 3) : at])
        if noun.number == "either":
            return "one" if article else "uncounted"
        return "one" if article and self._before(at) not in ("of", "two", "three", "many") else "several"

    def _verbs(self, at: int, text: str) -> tuple[Option, ...]:
        verb, form = VERB_FORMS[text]
        before, after = self._before(at), self._next(at)
        alive = [word in words.WHO or (word in NOUNS and NOUNS[word].alive) for word in self.texts[max(0, at - 6) : at]]
        if verb in _POSTURES and (not any(alive) or (verb in ("sit", "stand") and self._is_of_birds(at))):
            return ()
        beside = alive[-2:-1] if before in ("that", "which") else alive[-1:]
        if (form == "s" and not any(beside)) or before in ("a", "an", "the"):
            return ()
        if verb == "look":
            return options_of(words.INTRANSITIVE, verb, form, words.LOOKING_AT) if after == "at" else ()
        if after in words.DETERMINERS or (after in NOUNS and NOUNS[after].number == "several"):
            return options_of(words.TRANSITIVE, verb, form)
        if after and (
            after not in words.AFTER_A_NOUN or (after in ("up", "down", "out", "off") and verb not in _MOVES)
        ):
            return ()
        return options_of(words.INTRANSITIVE, verb, form)

    def _is_of_birds(self, at: int) -> bool:
        """A bird that sits also stands."""
        return any(
            text in NOUNS and NOUNS[text].thing in ("bird", "penguin") for text in self.texts[max(0, at - 6) : at]
        )

    def _relations(self, at: int, text: str) -> tuple[Option, ...]:
        before, after, ahead = self._before(at), self._next(at), self.texts[at + 1 : at + 4]
        options = options_of(words.RELATIONS, text)
        if text in ("background", "foreground"):
            return options if before == "the" else ()
        if text in ("left", "right"):
            ok = before in ("the", "his", "her", "its", "their", "to", "far") and after != "corner"
            return options if ok else ()
        if after not in words.DETERMINERS or before in ("made", "all", "close", "set", "upside"):
            return ()
        if text in ("up", "down"):
            return options if not words.SLOPES.isdisjoint(ahead) else ()
        if text in ("on", "over") and not words.NO_PLACE.isdisjoint(ahead):
            return ()
        if text == "on" and not words.GROUNDS.isdisjoint(ahead):
            return options_of(words.RELATIONS, text, instead=words.ON_GROUNDS)
        if text == "in front of" and not words.BOTH_SIDES.isdisjoint(ahead):
            return tuple(option for option in options if option.text != "behind")
        return options

    def _noun_swaps(self) -> Iterable[_Change]:
        nouns = [at for at, text in enumerate(self.texts) if text in NOUNS]
        for first, second in pairwise(nouns):
            between = self.texts[first + 1 : second]
            if words.EITHER_WAY.isdisjoint(between) and any(
                text in words.ONE_WAY or (text in VERB_FORMS and VERB_FORMS[text][0] in words.TRANSITIVE)
                for text in between
            ):
                one, other = NOUNS[self.texts[first]], NOUNS[self.texts[second]]
                there, here = self._form(first, one, other), self._form(second, other, one)
                if there and here and one.thing != other.thing:
                    yield _Change(first, (there,), second, here)

    def _form(self, at: int, noun: Noun, other: Noun) -> str:
        """The other noun in the number of the one that stands here; "" where it cannot stand here."""
        number = self._number(at, noun)
        counted = at == 0 or not words.COUNTING.isdisjoint(self.texts[max(0, at - 3) : at])
        if not self._ends_a_name(at) or number == "uncounted" or (number == "one" and not counted):
            return ""
        return other.one if number == "one" else other.several

    def _colour_swaps(self) -> Iterable[_Change]:
        colours = [at for at, text in enumerate(self.texts) if text in words.COLOURS and self._is_plain(at, text)]
        for first, second in pairwise(colours):
            named = [text for text in self.texts[first + 1 : second] if text in NOUNS]
            after = self._next(second)
            if named and after not in ("", "and", "or", *named) and after not in words.AFTER_A_NOUN:
                one, other = self.texts[first], self.texts[second]
                if meaning(one) != meaning(other):
                    yield _Change(first, (other,), second, one)


def _cased(new: str, old: str) -> str:
    """A word in the case of the one whose place it takes."""
    if len(old) > 1 and old.isupper():
        return new.upper()
    return new[0].upper() + new[1:] if old[0].isupper() else new


def _takes_an(word: str) -> bool:
    return word[0] in "aeiou" and not word.startswith(("uni", "eu", "one"))
