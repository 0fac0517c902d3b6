"""Sentences that a frozen backbone has read once: a run on them is the run that reads them for every step."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from diptych.common.errors import DiptychError
from diptych.data.collection import Collection, sentences
from diptych.encoders.images import FeatureConfig
from diptych.encoders.texts import TransformerConfig, TransformerEncoder
from diptych.matchers.base import Matcher
from diptych.matchers.mmca import MMCAConfig
from diptych.matchers.vse import VSEConfig
from diptych.training import held_sentences
from diptych.training.held_features import HeldRows, choose_rows
from diptych.training.held_sentences import HeldSentences
from diptych.training.loop import Device, train
from diptych.training.recipe import Recipe, TrainingConfig
from diptych.training.start import build_for
from tests.training import toy
from tests.training.test_loop import metrics

IMAGE = FeatureConfig(feature_dim=8)


def recipe_of(bert: str, kind: str = "mmca", frozen: bool = True, **training: object) -> Recipe:
    text = TransformerConfig(name=bert, frozen=frozen)
    model = (
        VSEConfig(dim=16, image=IMAGE, text=text)
        if kind == "vse"
        else MMCAConfig(dim=8, image=IMAGE, text=text, heads=2)
    )
    return toy.recipe(None, model, **training)


def built(bert: str) -> Matcher:
    torch.manual_seed(0)
    return build_for(recipe_of(bert), toy.splits()).train()


def odd() -> Collection:
    """Sentences of no word, of one, of many, and the same twice."""
    whole = toy.collection(4)
    texts = [["red", "a big red dog and a small blue cat and a boat"], ["", "red"], ["dog"], ["cat", "cat", "red dog"]]
    items = [replace(item, sentences=sentences(t, item.id)) for item, t in zip(whole.items, texts, strict=True)]
    return replace(whole, items=items)


@pytest.mark.parametrize("chunk", [2, 256])
def test_what_is_held_is_what_the_backbone_says(chunk: int, tiny_bert: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_sentences, "CHUNK", chunk)
    matcher, data = built(tiny_bert), odd()
    held = HeldSentences.read(data, matcher)
    texts = data.captions()[0]
    asked = choose_rows(held.starts, [7, 1, 2, 1])
    found = held.cut(asked)
    encoder = matcher.text_encoder
    assert isinstance(encoder, TransformerEncoder)
    for row, number in enumerate([7, 1, 2, 1]):
        alone = matcher.tokenizer.pad([matcher.tokenizer.ids(texts[number])])
        length = alone.ids.shape[1]
        assert int(found.mask[row].sum()) == length
        assert torch.equal(found.ids[row, :length], alone.ids[0])
        with torch.no_grad():
            torch.testing.assert_close(found.hidden[row, :length], encoder.read(alone)[0])
        assert not found.hidden[row, length:].any()
        assert not found.ids[row, length:].any()


def test_in_half_precision_half_as_much_is_held(tiny_bert: str) -> None:
    matcher = built(tiny_bert)
    held, half = HeldSentences.read(odd(), matcher), HeldSentences.read(odd(), matcher, torch.bfloat16)
    assert half.hidden.dtype == torch.bfloat16
    torch.testing.assert_close(half.hidden.float(), held.hidden, atol=0.05, rtol=0.05)


@pytest.mark.parametrize("kind", ["mmca", "vse"])
@pytest.mark.parametrize("sampler", ["captions", "one-caption", "all-captions"])
def test_a_run_on_held_sentences_is_the_same_run(kind: str, sampler: str, tiny_bert: str, tmp_path: Path) -> None:
    losses = []
    for name, settings in {"read": {}, "held": {"hold_sentences": True, "workers": 2}}.items():
        train(recipe_of(tiny_bert, kind, sampler=sampler, **settings), tmp_path / name, Device("cpu"), toy.splits())
        losses.append([entry["loss"] for entry in metrics(tmp_path / name) if "loss" in entry])
    assert len(losses[0]) > 2
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)


def test_the_backbone_reads_each_sentence_once(tiny_bert: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read, seen = TransformerEncoder.read, 0

    def counted(self: TransformerEncoder, batch: object) -> torch.Tensor:
        nonlocal seen
        seen += len(batch) if self.training else 0  # type: ignore[arg-type]
        return read(self, batch)  # type: ignore[arg-type]

    monkeypatch.setattr(TransformerEncoder, "read", counted)
    recipe = recipe_of(tiny_bert, epochs=3, hold_sentences=True, accumulate=2, evaluate_epochs=3)
    train(recipe, tmp_path / "run", Device("cpu"), toy.splits())
    assert seen == len(toy.splits().train.captions()[0])  # before the first step; validation is not in training mode


def test_what_is_read_once_is_not_compiled_for_it(
    tiny_bert: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object, **named: object) -> None:
        raise AssertionError("compiled")

    monkeypatch.setattr(torch._TorchCompileInductorWrapper, "__call__", fail)
    recipe = recipe_of(tiny_bert, epochs=1, hold_sentences=True, compile=True)
    train(recipe, tmp_path / "run", Device("cpu"), toy.splits())


def test_batches_only_say_which(tiny_bert: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[HeldRows] = []
    cut = HeldSentences.cut

    def noting(self: HeldSentences, rows: HeldRows) -> object:
        asked.append(rows)
        return cut(self, rows)

    monkeypatch.setattr(HeldSentences, "cut", noting)
    train(recipe_of(tiny_bert, epochs=1, hold_sentences=True), tmp_path / "run", Device("cpu"), toy.splits())
    assert asked
    assert all(isinstance(rows, HeldRows) for rows in asked)


def test_what_is_trained_or_changed_cannot_be_held(tiny_bert: str, tmp_path: Path) -> None:
    recipe = recipe_of(tiny_bert, frozen=False, hold_sentences=True)
    with pytest.raises(DiptychError, match=r"hold_sentences: expected model\.text of kind"):
        train(recipe, tmp_path / "trained", Device("cpu"), toy.splits())
    with pytest.raises(DiptychError, match="with frozen = true"):
        train(toy.recipe(hold_sentences=True), tmp_path / "gru", Device("cpu"), toy.splits())
    for name, value in (("drop_words", 0.2), ("foils", 1)):
        with pytest.raises(ValueError, match="hold_sentences: drop_words and foils"):
            TrainingConfig(epochs=1, hold_sentences=True, **{name: value})  # type: ignore[arg-type]
