"""Near misses differ in one attribute, and are wrong for it."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from diptych.data.scenes import (
    ATTRIBUTES,
    Caption,
    Scene,
    captioned,
    could_hold,
    holds,
    near_miss_set,
    near_misses,
)
from diptych.data.scenes.dice import Dice
from diptych.data.scenes.near_miss import near_miss_pair
from tests.data.scenes.scene_reader import is_true, read

seeds = st.integers(0, 2**40)
many = settings(max_examples=60, deadline=None)


def differences(right: Caption, wrong: Caption) -> set[str]:
    """The attributes in which two sentences differ, as read from their words."""
    (a, related_a), (b, related_b) = read(right), read(wrong)
    assert set(a) == set(b)
    found = {key for thing in a for key in set(a[thing]) | set(b[thing]) if a[thing].get(key) != b[thing].get(key)}
    if related_a != related_b:
        assert len(related_a) == len(related_b)
        found.add("relation")
    return found


def scene_differences(one: Scene, other: Scene) -> set[str]:
    assert len(one.things) == len(other.things)
    found = {
        name
        for a, b in zip(one.things, other.things, strict=True)
        for name in ("shape", "colour", "size", "texture", "count")
        if getattr(a, name) != getattr(b, name)
    }
    return found | ({"relation"} if one.relations != other.relations else set())


@many
@given(seeds, st.integers(0, 10**6))
def test_wrong_sentences_are_false_and_differ_in_one_attribute(seed: int, index: int) -> None:
    scene = captioned(seed, index).scene
    found = near_misses(scene, Dice("test", seed))
    assert {"shape", "colour", "size", "texture", "count"} <= {m.attribute for m in found} <= set(ATTRIBUTES)
    if len(scene.things) == 1:
        assert "relation" not in {m.attribute for m in found}
    for miss in found:
        assert is_true(miss.sentence, scene)
        assert not is_true(miss.wrong, scene)
        assert holds(scene, miss.sentence.statement)
        assert not could_hold(scene, miss.wrong.statement)
        assert differences(miss.sentence, miss.wrong) == {miss.attribute}
        assert miss.sentence.template == miss.wrong.template


@many
@given(seeds, st.integers(0, 10**6))
def test_pairs_are_right_one_way_and_wrong_the_other(seed: int, index: int) -> None:
    pair = near_miss_pair(seed, index)
    assert pair.attribute == ATTRIBUTES[index % 6]
    for caption, fits, fits_not in ((pair.sentence, pair.scene, pair.other), (pair.wrong, pair.other, pair.scene)):
        assert is_true(caption, fits)
        assert not is_true(caption, fits_not)
    assert differences(pair.sentence, pair.wrong) == {pair.attribute}
    assert scene_differences(pair.scene, pair.other) == {pair.attribute}
    assert pair.picture(64).size == (64, 64)
    assert pair.picture(64).tobytes() != pair.other_picture(64).tobytes()
    assert pair.scene.background == pair.other.background


def test_a_set_does_not_depend_on_how_many_are_asked_for() -> None:
    assert near_miss_set(4, 1) == near_miss_set(8, 1)[:4]
    assert near_miss_set(4, 1) != near_miss_set(4, 2)


def test_all_attributes_are_equally_many() -> None:
    assert Counter(p.attribute for p in near_miss_set(24)) == dict.fromkeys(ATTRIBUTES, 4)


def test_words_alone_do_not_tell_right_from_wrong() -> None:
    pairs = near_miss_set(600, 3)
    right = Counter(w for p in pairs for w in p.sentence.words)
    wrong = Counter(w for p in pairs for w in p.wrong.words)
    for word in right | wrong:
        # Roles are drawn by a fair coin: counts differ by a few times the root of their sum at most.
        assert abs(right[word] - wrong[word]) < 4 * (right[word] + wrong[word]) ** 0.5 + 1, word


def test_relations_of_what_lies_inside_are_changed_too() -> None:
    relations = {
        relation for i in range(5, 600, 6) for relation in {near_miss_pair(0, i).sentence.statement.claims[0].relation}
    }
    assert relations == {"left of", "right of", "above", "below", "inside", "around"}
