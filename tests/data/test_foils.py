"""A foil differs from its sentence in one word or one exchange, and says something else."""

import re
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diptych.data import foil_nouns
from diptych.data import foil_words as words
from diptych.data.foil_lexicon import NOUNS, VERB_FORMS, meaning
from diptych.data.foils import KINDS, Foil, foil, foils

SENTENCES = (
    "A dog sleeping on a bed.",
    "Two brown dogs are running across a grassy field.",
    "An elephant standing next to an old wooden fence",
    "a man in a red shirt riding a blue motorcycle down the street",
    "TWO ZEBRAS GRAZING IN THE GRASS",
    "A young woman holding an umbrella in front of a large bus.",
    "Three sheep lying under a tall tree.",
    "A pizza and a glass of wine on a table",
    "A fire hydrant, painted yellow, on the left side of a street.",
    "There are several people eating pizza in a kitchen.",
    "A tennis player swings his racket.",
    "A teddy bear inside a box",
    "The boy on the right wears a hat and carries 2 bags",
)


def of_kind(sentence: str, kind: str, draws: int = 60) -> set[str]:
    """All foils of a kind that so many draws give."""
    rng = np.random.default_rng(0)
    found = [one for _ in range(draws) for one in foils(sentence, rng)]
    return {one.text for one in found if one.kind == kind}


def without_articles(text: str) -> str:
    return re.sub(r"\b(a|an)\b", "a", text.lower())


def put_back(made: Foil) -> list[str]:
    """The foil with the old word where the new one stands, for each place where it does; articles left aside."""
    places = [match.start() for match in re.finditer(re.escape(made.becomes), made.text)]
    return [without_articles(made.text[:at] + made.was + made.text[at + len(made.becomes) :]) for at in places]


@pytest.mark.parametrize("sentence", SENTENCES)
def test_one_word_is_changed_or_two_are_exchanged(sentence: str) -> None:
    rng = np.random.default_rng(1)
    for _ in range(100):
        made = foil(sentence, rng)
        assert made is not None
        assert made.kind in KINDS
        assert made.text != sentence
        if made.kind != "swap":
            assert without_articles(sentence) in put_back(made)
        else:
            was, now = without_articles(sentence).split(), without_articles(made.text).split()
            assert len(was) == len(now) or " " in made.was + made.becomes


known = st.sampled_from(
    [*NOUNS, *VERB_FORMS, *words.RELATIONS, *words.ATTRIBUTES, *words.COLOURS, "a", "An", "the", ","]
)


@settings(max_examples=300, deadline=None)
@given(st.lists(known | st.text(max_size=5), max_size=8), st.integers(0, 9))
def test_any_sentence_is_changed_in_one_place_alone(parts: list[str], seed: int) -> None:
    sentence = " ".join(parts)
    for made in foils(sentence, np.random.default_rng(seed)):
        assert made.text != sentence
        if made.kind != "swap":
            assert without_articles(sentence) in put_back(made)


@pytest.mark.parametrize("sentence", SENTENCES)
def test_foils_are_at_most_one_of_a_kind_in_their_order(sentence: str) -> None:
    kinds = [made.kind for made in foils(sentence, np.random.default_rng(2))]
    assert kinds == [kind for kind in KINDS if kind in kinds]
    assert kinds


def test_the_same_generator_gives_the_same_foils() -> None:
    def drawn(seed: int) -> list[Foil | None]:
        rng = np.random.default_rng(seed)
        return [foil(sentence, rng) for sentence in SENTENCES for _ in range(5)]

    assert drawn(3) == drawn(3)
    assert drawn(3) != drawn(4)


@pytest.mark.parametrize("sentence", ["", "...", "Something nice happens here", "person", "People and players", "\n"])
def test_where_no_rule_applies_there_is_none(sentence: str) -> None:
    rng = np.random.default_rng(0)
    assert foil(sentence, rng) is None
    assert foils(sentence, rng) == []


def test_no_word_is_put_in_that_the_sentence_says_elsewhere() -> None:
    for text in of_kind("A man and a woman and a dog and a cat", "object", 200):
        found = [meaning(word) for word in re.findall("[a-z]+", text.lower()) if word in NOUNS]
        assert len(set(found)) == len(found), text


def test_no_word_is_put_in_that_another_sentence_of_the_picture_says() -> None:
    others = ["A woman with a puppy", "girls on horses"]
    rng = np.random.default_rng(0)
    for _ in range(100):
        made = foils("A man sits beside a cat", rng, others)[0]
        assert made.kind == "object"
        assert not {"woman", "girl", "dog", "horse"} & set(made.text.split()), made.text


def test_the_number_of_a_noun_and_the_case_of_a_word_are_kept() -> None:
    assert of_kind("Sheep", "object")
    assert all(text[0].isupper() for text in of_kind("Sheep", "object"))
    assert all(text.endswith("s") or text in ("sheep", "buses") for text in of_kind("dogs", "object"))
    assert all(not text.endswith("s") for text in of_kind("a dog", "object"))
    assert all(text.isupper() for sentence in ("TWO DOGS RUNNING IN SNOW",) for text in of_kind(sentence, "object"))
    assert of_kind("women", "object") == {"men", "boys"}
    # Uncounted stays uncounted.
    assert of_kind("deep snow", "object") <= {"deep grass", "deep sand", "deep mud"}
    assert not any(text.startswith("eating a") for text in of_kind("eating pizza", "object"))


def test_articles_follow_the_new_word() -> None:
    for sentence in ("A zebra", "An elephant", "an apple", "A giraffe rides a truck"):
        for kind in ("object", "swap"):
            for text in of_kind(sentence, kind, 200):
                for article, word in pairwise(text.lower().split()):
                    if article in ("a", "an"):
                        assert article == ("an" if word[0] in "aeiou" and word != "unicycle" else "a"), text
    assert "An elephant" in of_kind("A zebra", "object", 200)


def test_words_are_matched_whole() -> None:
    assert foil("carpets, catalogues and redwood", np.random.default_rng(0)) is None
    # A fire hydrant is no fire, a hot dog no dog, and a dog house no dog.
    assert "hot" not in " ".join(of_kind("A hot dog", "object"))
    assert all("dog" in text for text in of_kind("A dog house", "object"))
    assert not of_kind("throwing a baseball", "object")
    assert of_kind("a baseball player", "object")
    assert not of_kind("A black and white photo", "colour")


def test_each_kind_by_example() -> None:
    assert of_kind("A red bus", "colour") == {f"A {new} bus" for new in words.COLOURS["red"]}
    assert of_kind("two dogs", "number") == {"three dogs", "four dogs", "five dogs"}
    assert not of_kind("one dog and a cat", "number")
    assert of_kind("an open book", "attribute") == {"a closed book"}
    assert "A cat running on a sofa" in of_kind("A cat sitting on a sofa", "action")
    assert of_kind("A man rides a horse", "action") == {
        f"A man {new} a horse" for new in ("pushes", "washes", "paints", "repairs")
    }
    assert of_kind("a cup above the sink", "relation") == {"a cup below the sink", "a cup under the sink"}
    assert of_kind("on the left side", "relation") == {"on the right side"}
    assert of_kind("a dog on a bed", "swap") == {"a bed on a dog"}
    assert of_kind("Two dogs on a bed", "swap") == {"Two beds on a dog"}
    assert of_kind("A red bus and a blue car", "swap") == {"A blue bus and a red car"}


def test_an_exchange_that_changes_nothing_is_not_made() -> None:
    for sentence in (
        "a dog and a cat",
        "a dog next to a cat",
        "a red and white bus",
        "a red bus and a blue bus",
        "dogs on a dog",
        "a grey bus and a silver car",
        "a man standing in line with a dog",
    ):
        assert not of_kind(sentence, "swap"), sentence


def test_what_stands_also_sits_where_it_is_not_alive() -> None:
    assert not of_kind("A vase sitting on a table", "action")
    assert of_kind("A dog sitting on a table", "action")
    assert not of_kind("A bird sitting on a branch", "action")


def test_no_table_puts_in_a_synonym_or_the_same_thing() -> None:
    for text, noun in NOUNS.items():
        for options in noun.options.values():
            assert all(option.meaning != noun.thing and meaning(option.text) != noun.thing for option in options), text
            assert not {"person", "people"} & {option.text for option in options}
    for table in (
        words.COLOURS,
        words.NUMBERS,
        words.ATTRIBUTES,
        words.RELATIONS,
        words.INTRANSITIVE,
        words.TRANSITIVE,
    ):
        for text, instead in table.items():
            assert len(set(instead)) == len(instead) > 0, text
            assert meaning(text) not in [meaning(option) for option in instead], text


def test_every_word_put_in_is_known_so_that_one_said_already_is_noticed() -> None:
    for noun in NOUNS.values():
        for options in noun.options.values():
            assert all(option.text in NOUNS or option.text == "nun" for option in options)
    bases = {base for base, _ in VERB_FORMS.values()}
    for table in (words.INTRANSITIVE, words.TRANSITIVE):
        for text, instead in table.items():
            assert {text, *instead} <= bases


def test_things_seen_together_are_things() -> None:
    things = {noun.thing for noun in NOUNS.values()}
    for line in foil_nouns.TOGETHER:
        assert {word.replace("_", " ") for word in line.split()} <= things, line


def test_a_noun_stands_in_one_row() -> None:
    seen: set[str] = set()
    for lines in foil_nouns.OBJECTS.values():
        for line in lines:
            for word in line.lstrip("-").split():
                text = word.strip("~=").partition("/")[0]
                assert text not in seen, text
                seen.add(text)
