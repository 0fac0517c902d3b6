"""Scenes, their pictures and their sentences."""

import os
import re
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diptych.common.errors import DiptychError
from diptych.data.scenes import (
    COLOURS,
    SHAPES,
    SIZES,
    TEXTURES,
    Scene,
    boxes,
    captioned,
    captioned_scenes,
    could_hold,
    draw,
    holds,
)
from diptych.data.scenes.draw import background, checked_size, pixels
from diptych.data.scenes.scene import Place, Thing
from diptych.data.scenes.sheet import contact_sheet
from diptych.data.scenes.statement import Claim, Phrase, Statement
from diptych.data.vocabulary import split_words
from tests.data.scenes.scene_reader import PLURALS, WORDS, is_true, read

seeds = st.integers(0, 2**40)
indices = st.integers(0, 10**6)
many = settings(max_examples=60, deadline=None)


def test_a_scene_does_not_depend_on_how_many_are_asked_for() -> None:
    few, more = list(captioned_scenes(3, 5)), list(captioned_scenes(9, 5))
    assert few == more[:3]
    assert captioned(5, 7) == more[7]


def test_seeds_and_indices_give_different_scenes() -> None:
    scenes = [captioned(seed, index).scene for seed in range(4) for index in range(25)]
    assert len({repr(scene) for scene in scenes}) == 100


def test_another_process_gives_the_same_bytes() -> None:
    code = (
        "import hashlib; from diptych.data.scenes import captioned_scenes, draw; h = hashlib.sha256()\n"
        "for c in captioned_scenes(20, 3): h.update(draw(c.scene).tobytes() + repr(c).encode())\n"
        "print(h.hexdigest())"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert len(digests) == 1


@many
@given(seeds, indices)
def test_things_are_in_the_picture_and_apart(seed: int, index: int) -> None:
    scene = captioned(seed, index).scene
    assert 1 <= len(scene.things) <= 3
    assert len({(t.shape, t.colour) for t in scene.things}) == len(scene.things)
    for i, thing in enumerate(scene.things):
        assert thing.shape in SHAPES
        assert thing.colour in COLOURS
        assert thing.size in SIZES
        assert thing.texture in TEXTURES
        assert 1 <= thing.count <= 4
        assert min(thing.box) > 0
        assert max(thing.box) < 1
        for j, other in enumerate(scene.things[:i]):
            inside = scene.related(i, "inside", j) or scene.related(j, "inside", i)
            a, b = thing.box, other.box
            apart = a[2] < b[0] or b[2] < a[0] or a[3] < b[1] or b[3] < a[1]
            assert apart != inside
    big = [p.radius for t in scene.things if t.size == "big" for p in t.places]
    small = [p.radius for t in scene.things if t.size == "small" for p in t.places]
    assert min(big, default=1) > 1.15 * max(small, default=0)


@many
@given(seeds, indices, st.sampled_from([64, 96, 150]))
def test_boxes_hold_just_what_is_drawn(seed: int, index: int, size: int) -> None:
    scene = captioned(seed, index).scene
    empty = pixels(Scene((), scene.background), size)
    for thing, members in zip(scene.things, boxes(scene, size), strict=True):
        assert members.shape == (thing.count, 4)
        for place, (x0, y0, x1, y1) in zip(thing.places, members, strict=True):
            alone = Thing(thing.shape, thing.colour, thing.size, thing.texture, (place,), thing.tint)
            changed = (pixels(Scene((alone,), scene.background), size) != empty).any(2)
            ys, xs = np.nonzero(changed)
            assert x0 <= xs.min() <= x0 + 1
            assert y0 <= ys.min() <= y0 + 1
            assert x1 - 2 <= xs.max() < x1
            assert y1 - 2 <= ys.max() < y1
    outside = np.ones((size, size), dtype=bool)
    for members in boxes(scene, size):
        for x0, y0, x1, y1 in members:
            outside[y0:y1, x0:x1] = False
    drawn = np.asarray(draw(scene, size))
    assert drawn.shape == (size, size, 3)
    assert drawn.dtype == np.uint8
    assert (drawn[outside] == empty[outside]).all()


def test_every_shape_colour_and_texture_looks_different() -> None:
    ground = captioned(0, 0).scene.background
    place = (Place(0.5, 0.5, 0.165),)
    looks = [
        pixels(Scene((Thing(shape, colour, "big", texture, place),), ground), 96).tobytes()
        for shape in SHAPES
        for colour in COLOURS
        for texture in TEXTURES
    ]
    assert len(set(looks)) == len(SHAPES) * len(COLOURS) * len(TEXTURES)


def test_the_named_colour_is_the_one_that_is_seen_most() -> None:
    from diptych.data.scenes.draw import PAINT

    ground = captioned(0, 0).scene.background
    for colour in COLOURS:
        thing = Thing("square", colour, "big", "plain", (Place(0.5, 0.5, 0.3),), (8, -8, 8))
        middle = pixels(Scene((thing,), ground), 96)[36:60, 36:60].reshape(-1, 3).astype(int)
        nearest = [min(PAINT, key=lambda name: sum((p - np.array(PAINT[name])) ** 2)) for p in middle]
        assert nearest.count(colour) == len(nearest)


@many
@given(seeds, indices)
def test_sentences_are_true_and_name_the_right_things(seed: int, index: int) -> None:
    item = captioned(seed, index)
    for caption in item.captions:
        phrases, related = read(caption)
        assert set(phrases) == {p.thing for p in caption.statement.phrases}
        for thing, said in phrases.items():
            for attribute, value in said.items():
                assert str(getattr(item.scene.things[thing], attribute)) == value
        assert len(related) == len(caption.statement.claims)
        for subject, name, object in related:
            assert item.scene.related(subject, name, object)
        assert is_true(caption, item.scene)
        assert holds(item.scene, caption.statement)
        assert could_hold(item.scene, caption.statement)


@many
@given(seeds, indices)
def test_sentences_are_well_formed_and_differ(seed: int, index: int) -> None:
    captions = captioned(seed, index).captions
    assert len(captions) == 5
    assert len({c.text for c in captions}) == 5
    assert len({c.template for c in captions}) == 5
    for caption in captions:
        text = caption.text
        assert re.fullmatch(r"[A-Z][a-z]*(,? [a-z]+)*\.", text)
        assert caption.words == split_words(text)
        assert len(caption.names) == len(caption.words)
        for word, after in zip(caption.words, caption.words[1:], strict=False):
            if word in ("a", "an"):
                assert (word == "an") == (after[0] in "aeiou")
            if word in ("two", "three", "four"):
                rest = text.lower().split(word, 1)[1]
                noun = next(w for w in split_words(rest) if not WORDS.get(w, "shape").startswith(("col", "siz", "tex")))
                assert noun in PLURALS or noun == "plus"
        for word, named in zip(caption.words, caption.names, strict=True):
            assert bool(named) == (word in WORDS)


def test_verbs_agree_with_their_subjects() -> None:
    for item in captioned_scenes(300, 2):
        for caption in item.captions:
            for verb, number in re.findall(r"\bthere (is|are) (\w+)", caption.text.lower()):
                assert (verb == "are") == (number in ("two", "three", "four"))


def test_every_word_and_relation_occurs() -> None:
    items = list(captioned_scenes(600, 4))
    heard = {w for item in items for c in item.captions for w in c.words}
    assert set(WORDS) <= heard
    assert {c.relation for i in items for s in i.captions for c in s.statement.claims} == {
        "left of", "right of", "above", "below", "inside", "around",
    }  # fmt: skip
    assert {len(c.statement.phrases) for i in items for c in i.captions} == {1, 2, 3}


def _thing(shape: str, colour: str, *places: tuple[float, float], size: str = "small") -> Thing:
    return Thing(shape, colour, size, "plain", tuple(Place(x, y, 0.08) for x, y in places))


def _says(count: int, shape: str | None = None, colour: str | None = None) -> Phrase:
    return Phrase(0, count, shape, colour, None, None)


GROUND = captioned(0, 0).scene.background


def test_counts_are_exact_and_phrases_must_not_be_ambiguous() -> None:
    scene = Scene((_thing("star", "red", (0.2, 0.2), (0.4, 0.2)), _thing("star", "blue", (0.8, 0.8))), GROUND)
    assert holds(scene, Statement((_says(2, "star", "red"),)))
    assert not holds(scene, Statement((_says(1, "star", "red"),)))
    assert not could_hold(scene, Statement((_says(1, "star", "red"),)))
    # Both groups are stars: "one star" and "three stars" are true in some reading only.
    for count in (1, 2, 3):
        assert not holds(scene, Statement((_says(count, "star"),)))
        assert could_hold(scene, Statement((_says(count, "star"),)))
    assert not could_hold(scene, Statement((_says(4, "star"),)))
    # Two phrases never plainly mean one thing.
    assert not holds(scene, Statement((_says(1, "star", "blue"), _says(1, None, "blue"))))


def test_relations_are_plain_or_perhaps_or_false() -> None:
    scene = Scene((_thing("star", "red", (0.2, 0.5)), _thing("heart", "blue", (0.8, 0.52))), GROUND)
    star, heart = _says(1, "star"), _says(1, "heart")
    plain = {r for r in ("left of", "right of", "above", "below") if scene.related(0, r, 1)}
    perhaps = {r for r in ("left of", "right of", "above", "below") if scene.may_be_related(0, r, 1)}
    assert plain == {"left of"}
    assert perhaps == {"left of", "above", "below"}
    assert holds(scene, Statement((star, heart), (Claim(0, "left of", 1),)))
    assert holds(scene, Statement((star, heart), (Claim(1, "right of", 0),)))
    assert not could_hold(scene, Statement((star, heart), (Claim(0, "right of", 1),)))
    assert not could_hold(scene, Statement((star, heart), (Claim(0, "inside", 1),)))
    lower = Scene((scene.things[0], _thing("heart", "blue", (0.8, 0.6))), GROUND)
    assert not could_hold(lower, Statement((star, heart), (Claim(0, "below", 1),)))


def test_what_lies_inside_is_neither_left_nor_above() -> None:
    outer = Thing("ring", "red", "big", "plain", (Place(0.5, 0.5, 0.22),))
    inner = Thing("star", "blue", "small", "plain", (Place(0.51, 0.51, 0.08),))
    scene = Scene((outer, inner), GROUND)
    assert [r.name for r in scene.relations] == ["around", "inside"]
    assert not any(scene.may_be_related(1, name, 0) for name in ("left of", "right of", "above", "below", "around"))


def test_backgrounds_are_pale_and_vary() -> None:
    grounds = [background(captioned(0, i).scene.background, 32) for i in range(40)]
    assert min(g.min() for g in grounds) > 170
    assert len({g.tobytes() for g in grounds}) == 40


@pytest.mark.parametrize("size", [0, 31, 2049])
def test_impossible_sizes_are_refused(size: int) -> None:
    with pytest.raises(DiptychError, match=f"picture size: {size}"):
        checked_size(size)


def test_a_contact_sheet_has_room_for_its_pictures_and_sentences() -> None:
    items = list(captioned_scenes(7, 0))
    sheet = contact_sheet([(i.scene, [c.text for c in i.captions]) for i in items], columns=3, picture_size=96)
    assert sheet.width == 16 + 3 * (96 + 16)
    first = np.asarray(sheet)[16 : 16 + 96, 16 : 16 + 96]
    assert (first == np.asarray(draw(items[0].scene, 96))).all()
    assert (np.asarray(sheet)[16 + 96 + 6 :, 16 : 16 + 96] < 100).any()
