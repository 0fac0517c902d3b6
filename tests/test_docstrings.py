"""Every name of the Python interface shows in its docstring how it is used, and what it shows is true."""

import doctest
import os
import re
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import diptych
from diptych.data.batches import Pixels
from diptych.data.feature_file import FeatureFile
from diptych.data.feature_writer import FeatureWriter
from diptych.data.read import read_collection
from diptych.data.tokens import encode
from diptych.encoders.extract import describe, load_extractor
from diptych.evaluation.evaluate import evaluate_matcher
from diptych.explain.explain import explain
from diptych.matchers.base import Matcher
from diptych.search.index import Index
from diptych.search.stores.store import Condition
from diptych.training.losses.hinge import HingeConfig
from diptych.training.recipe import read_recipe
from tests.encoders.pictures import picture
from tests.search import tiny

PAGE = Path(__file__).parent.parent / "docs" / "python.md"
DIRECTIVE = re.compile(r"^\.\. auto(?:class|function|exception):: (\S+)\n((?:   :.*\n)*)", re.MULTILINE)
PICTURES, SENTENCES = ["dog.png", "boat.png", "cat.png"], ["a red dog", "two boat", "the cat"]
CAPTIONS = """image,caption,split
dog.png,a red dog,train
dog.png,the dog,train
boat.png,two boat,train
boat.png,a boat,train
cat.png,the cat,test
cat.png,a cat sits,test
"""
RECIPE = """
[model]
kind = "vse"
dim = 8
image = {kind = "features", feature_dim = 438}
text = {kind = "gru", word_dim = 6, bidirectional = false}
[data]
kind = "scenes"
train = 6
validation = 4
test = 4
[loss]
kind = "hinge"
[training]
epochs = 1
batch_size = 8
[variants.order]
model.similarity = "order"
"""


def documented() -> dict[str, Any]:
    """What the page of the Python interface shows, by its full name: functions, classes, and the members it lists."""
    named = {}
    for name, options in DIRECTIVE.findall(PAGE.read_text(encoding="utf-8")):
        module, _, own = name.rpartition(".")
        thing = getattr(import_module(module), own)
        named[name] = thing
        listed = re.search(r":members: *(.*)", options)
        special = re.search(r":special-members: *(.*)", options)
        left_out = re.search(r":exclude-members: *(.*)", options)
        members = [m for found in (listed, special) if found for m in found[1].split(", ") if m]
        if listed and not listed[1]:
            members += [m for m in vars(thing) if not m.startswith("_") and is_code(vars(thing)[m])]
        for member in set(members) - set(left_out[1].split(", ") if left_out else ()):
            named[f"{name}.{member}"] = vars(thing)[member]
    return named


def is_code(member: Any) -> bool:
    return callable(member) or isinstance(member, property | classmethod | staticmethod)


NAMED = documented()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """What the examples share; they run in a folder of their own."""
    folder, before = tmp_path_factory.mktemp("docstrings"), Path.cwd()
    os.chdir(folder)
    try:
        album = Path("album")
        album.mkdir()
        for seed, name in enumerate(PICTURES):
            picture(seed=seed).save(name)
            picture(seed=seed).save(album / name)
        Path("captions.csv").write_text(CAPTIONS)
        Path("recipe.toml").write_text(RECIPE)
        tiny.save_vse(Path("model"))
        Path("model-vit").rename("vit")
        tiny.save_dive(Path("other"))
        extractor = load_extractor("vit", size=32)
        writer = FeatureWriter(Path("regions.features"), describe(extractor, "vit"))
        for name in PICTURES:
            writer.add(Path(name).stem, extractor.regions([Image.open(name)])[0])
        writer.finish()
        matcher, other = Matcher.from_pretrained("model"), Matcher.from_pretrained("other")
        collection = read_collection("captions.csv")
        index = Index.create("index.db", "model", device="cpu")
        index.sync("album")
        yield {
            **{name: getattr(diptych, name) for name in diptych.__all__},
            "Condition": Condition, "FeatureFile": FeatureFile, "HingeConfig": HingeConfig, "Image": Image,
            "Path": Path, "np": np, "torch": torch, "encode": encode, "read_recipe": read_recipe,
            "evaluate_matcher": evaluate_matcher, "explain": explain,
            "matcher": matcher, "other": other, "collection": collection, "index": index,
            "images": matcher.encode_images(PICTURES), "texts": matcher.encode_texts(SENTENCES),
            "pixels": Pixels(torch.from_numpy(np.stack([extractor.prepare(Image.open(n)) for n in PICTURES]))),
            "tokens": encode(matcher.tokenizer, SENTENCES),
            "evaluation": evaluate_matcher(matcher, collection),
            "told": explain(matcher, "dog.png", SENTENCES[0]),
            "loss": replace(HingeConfig(), margin=0.5).build(),
        }  # fmt: skip
        index.close()
    finally:
        os.chdir(before)


def text_of(thing: Any) -> str:
    inner = thing.fget if isinstance(thing, property) else getattr(thing, "__func__", thing)
    return getattr(inner, "__doc__", None) or ""


def test_what_the_package_exports_is_on_the_page() -> None:
    shown = {id(thing) for thing in NAMED.values()}
    exported = {name: getattr(diptych, name) for name in diptych.__all__ if name != "__version__"}
    assert [name for name, thing in exported.items() if id(thing) not in shown] == []


@pytest.mark.parametrize("name", sorted(NAMED))
def test_the_docstring_shows_how_it_is_used(name: str, world: dict[str, Any]) -> None:
    thing = NAMED[name]
    text = text_of(thing)
    owner = thing if isinstance(thing, type) else getattr(thing, "fget", None) or getattr(thing, "__func__", thing)
    names = {**vars(import_module(owner.__module__)), **world}
    test = doctest.DocTestParser().get_doctest(text, names, name, None, None)
    assert test.examples, "expected a line that begins with >>>"
    told: list[str] = []
    result = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS, verbose=False).run(test, out=told.append)
    assert result.failed == 0, "".join(told)
