"""Sentences of other languages to English, which the models know: by Apertium, where the machine has it.

Apertium translates by rules and dictionaries, on this machine, in a few tenths of a second; a pair of languages takes
some megabytes. Debian has Spanish, Catalan, Galician, Basque, Serbo-Croatian, Macedonian, Icelandic and Esperanto to
English: `apt install apertium-eng-spa`.
"""

import subprocess
from collections.abc import Sequence
from dataclasses import replace
from functools import cache

from diptych.common.errors import DiptychError
from diptych.search.asking.query import SearchQuery

PROGRAM = "apertium"
ENGLISH = ("eng", "en")
# Older pairs are named by the two letters of ISO 639-1, newer ones by the three of ISO 639-3.
SAME = (
    {"es", "spa"}, {"ca", "cat"}, {"gl", "glg"}, {"eu", "eus"}, {"sh", "hbs"}, {"mk", "mkd"}, {"is", "isl"},
    {"eo", "epo"}, {"cy", "cym"},
)  # fmt: skip
SECONDS = 60


def to_english(sentences: Sequence[str], language: str) -> list[str]:
    """Sentences in English, in their order; words that Apertium does not know stay as they are.

    language: by its code, `es` or `spa`; `en` and `eng` leave everything as it is
    """
    if language in ENGLISH or not sentences:
        return list(sentences)
    # Each a paragraph, which is what the program keeps apart.
    given = "\n\n".join(" ".join(sentence.split()) for sentence in sentences)
    told = [part.strip() for part in _run("-u", _pair(language), given=given).strip("\n").split("\n\n")]
    if len(told) != len(sentences):
        raise DiptychError(f"language: {PROGRAM} gave {len(told)} translations of {len(sentences)} sentences")
    return told


def translated(queries: Sequence[SearchQuery], language: str | None) -> list[SearchQuery]:
    """Queries with their sentences in English; pictures and vectors stay as they are."""
    if language is None:
        return list(queries)
    texts = list(dict.fromkeys(term.value for query in queries for term in query.terms if isinstance(term.value, str)))
    english = dict(zip(texts, to_english(texts, language), strict=True))
    return [
        SearchQuery(
            tuple(
                replace(term, value=english[term.value]) if isinstance(term.value, str) else term
                for term in query.terms
            )
        )
        for query in queries
    ]


@cache
def _pair(language: str) -> str:
    """The name that Apertium has for translating a language to English."""
    names = next((same for same in SAME if language in same), {language})
    there = _run("-l", given="").split()
    found = next((pair for pair in there if pair in {f"{name}-{to}" for name in names for to in ENGLISH}), None)
    if found is None:
        known = sorted({pair.rpartition("-")[0] for pair in there if pair.rpartition("-")[2] in ENGLISH})
        have = f"it has {', '.join(known)}" if known else "it has none"
        raise DiptychError(f"language: {PROGRAM} cannot translate {language!r} to English here; {have}")
    return found


def _run(*options: str, given: str) -> str:
    try:
        done = subprocess.run(
            [PROGRAM, *options], input=given, capture_output=True, check=False, timeout=SECONDS, encoding="utf-8"
        )
    except FileNotFoundError:
        raise DiptychError(
            f"language: translating needs the program {PROGRAM} (on Debian `apt install apertium-eng-spa` for Spanish)"
        ) from None
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError) as error:
        raise DiptychError(f"language: {PROGRAM} did not translate: {error}") from None
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines() or ["nothing"]
        raise DiptychError(f"language: {PROGRAM} says: {said[-1]}")
    return done.stdout
