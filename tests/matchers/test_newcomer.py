"""A matcher that nothing in the package knows is trained, evaluated, explained, reported and searched all the same.

It is what a newcomer would write: the polysemous embeddings of PVSE (Song and Soleymani, CVPR 2019), K of them a side,
of which the nearest two count.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from diptych.data.tokens import Tokenizer, WordTokenizer
from diptych.data.vocabulary import Vocabulary
from diptych.encoders.encoded import Encoded, l2
from diptych.encoders.images import FeatureConfig, ImageConfig, PixelConfig
from diptych.encoders.pooling import mean_pool
from diptych.encoders.texts import GRUConfig, TextConfig
from diptych.evaluation.evaluate import evaluate_matcher
from diptych.explain.explain import explain
from diptych.matchers.base import Layout, Matcher, Sides, View
from diptych.matchers.catalog import MATCHERS
from diptych.matchers.kept import Kept
from diptych.matchers.view import of_pictures, of_sentences
from diptych.report.embedding import embed
from diptych.report.subject import look_at
from diptych.search.index import Index
from diptych.search.models.embedder import Embedder
from diptych.training.loop import Device, train
from tests.encoders.tiny_models import save, stirred, vit
from tests.evaluation import tiny
from tests.matchers import test_every_matcher as common
from tests.matchers.inputs import FEATURE_DIM, SENTENCES, word_tokenizer
from tests.search.tiny import SIDE, WORDS, fill
from tests.training import toy

SOURCE = Path(__file__).parents[2] / "src"


@dataclass(frozen=True)
class NewcomerConfig:
    """K embeddings a side."""

    kind: Literal["newcomer"] = "newcomer"
    dim: int = 8
    image: ImageConfig = field(default_factory=lambda: FeatureConfig(feature_dim=FEATURE_DIM))
    text: TextConfig = field(default_factory=lambda: GRUConfig(word_dim=7))
    embeddings: int = 3


class Heads(nn.Module):
    """z_k = l2(whole + W sum_i a_ki x_i), a_k = softmax over i of (u_k . x_i)."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.queries = nn.Linear(dim, heads, bias=False)
        self.out = nn.Linear(dim, dim)

    def weights(self, encoded: Encoded) -> Tensor:
        """(n, K, k), 0 at pads."""
        logits = self.queries(encoded.vectors).transpose(1, 2)
        return logits.masked_fill(~encoded.mask.unsqueeze(1), float("-inf")).softmax(-1)

    def forward(self, encoded: Encoded) -> Kept:
        """(n, K, d)."""
        vectors = encoded.vectors.masked_fill(~encoded.mask.unsqueeze(-1), 0)
        whole = mean_pool(encoded.vectors, encoded.mask) if encoded.whole is None else encoded.whole
        heads = l2(whole.unsqueeze(1) + self.out(self.weights(encoded) @ vectors))
        return Kept(heads, torch.ones(heads.shape[:2], dtype=torch.bool, device=heads.device))


class Newcomer(Matcher):
    """All that a paper has to say: what is kept, what a score is; and what it can show, and what a store compares."""

    title = "the newcomer"
    config: NewcomerConfig

    def __init__(self, config: NewcomerConfig, tokenizer: Tokenizer, assets: Path | None = None) -> None:
        super().__init__(config, tokenizer, assets)
        self.image_heads = Heads(config.dim, config.embeddings)
        self.text_heads = Heads(config.dim, config.embeddings)

    def keep_images(self, encoded: Encoded) -> Kept:
        kept: Kept = self.image_heads(encoded)
        return kept

    def keep_texts(self, encoded: Encoded) -> Kept:
        kept: Kept = self.text_heads(encoded)
        return kept

    def score(self, images: Kept, texts: Kept) -> Tensor:
        k = self.config.embeddings
        return torch.einsum("nkd,mld->nmkl", images.vectors[:, :k], texts.vectors[:, :k]).amax((2, 3))

    def layout(self) -> Layout:
        return Layout(self.config.dim, self.config.embeddings, similarity="max")

    def see(self, images: Kept, texts: Kept, encoded: Sides | None = None) -> dict[str, View]:
        if encoded is None:
            return {}
        regions = of_pictures(self.image_heads.weights(encoded[0]), len(texts))
        words = of_sentences(self.text_heads.weights(encoded[1]), len(images))
        return {
            "head_to_region": View(regions, ("slots", "regions"), "sum"),
            "head_to_word": View(words, ("slots", "words"), "sum"),
        }

    def points(self, kept: Kept) -> tuple[Tensor, str]:
        return kept.vectors[:, : self.config.embeddings], "an embedding of an item"


@pytest.fixture(autouse=True)
def listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one line in the catalog."""
    monkeypatch.setitem(MATCHERS, "newcomer", (NewcomerConfig, Newcomer))


@pytest.fixture
def matcher() -> Matcher:
    torch.manual_seed(3)
    return Newcomer(NewcomerConfig(), word_tokenizer()).eval()


def test_the_package_knows_nothing_of_it() -> None:
    named = [path.name for path in SOURCE.rglob("*.py") if "newcomer" in path.read_text(encoding="utf-8").lower()]
    assert named == []


@pytest.mark.parametrize("test", [name for name in dir(common) if name.startswith("test_")])
def test_what_every_matcher_must_hold_to(test: str, matcher: Matcher, tmp_path: Path) -> None:
    needed = {"matcher": matcher, "tmp_path": tmp_path}
    function = getattr(common, test)
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    function(**{name: needed[name] for name in names})


def test_a_recipe_trains_it_and_the_run_is_evaluated(tmp_path: Path) -> None:
    config = NewcomerConfig(dim=16, image=FeatureConfig(feature_dim=8))
    recipe = toy.recipe(model=config, epochs=6, terms={"mmd": 0.01})  # type: ignore[arg-type]
    outcome = train(recipe, tmp_path / "run", Device("cpu"), toy.splits())
    assert outcome.finished
    trained = Matcher.from_pretrained(tmp_path / "run" / "best")
    assert isinstance(trained, Newcomer)
    torch.manual_seed(recipe.training.seed)
    untrained = Newcomer(config, trained.tokenizer)
    before, after = (evaluate_matcher(m, toy.splits().train).figures["rsum"] for m in (untrained, trained))
    assert after > before + 20


def test_it_is_explained(matcher: Matcher) -> None:
    features = np.random.default_rng(0).normal(size=(4, FEATURE_DIM)).astype(np.float32)
    told = explain(matcher, tiny.Arrays([features])[0], SENTENCES[0], sentences=SENTENCES)
    assert told.title == "the newcomer"
    arrays = told.arrays()
    assert arrays["head_to_region"].shape == (3, 4)
    assert arrays["head_to_word"].shape == (3, len(told.words))
    np.testing.assert_allclose(arrays["head_to_region"].sum(-1), 1, atol=1e-5)
    assert arrays["together"].shape == (len(told.words), 4)
    assert len(told.nearest) == 3
    assert told.looks() is not None
    assert told.whole() is not None
    assert told.strength() is not None
    assert told.to_json()["arrays"]["head_to_region"]["axes"] == ["slots", "regions"]


def test_its_points_are_on_the_map_of_a_report() -> None:
    tokenizer = WordTokenizer(Vocabulary.build([" ".join(tiny.WORDS)], at_least=1))
    subject = look_at(Newcomer(NewcomerConfig(), tokenizer).eval(), tiny.collection(9), "test")
    points = embed(subject)
    assert points.count == 3
    assert points.what == "an embedding of an item"
    assert points.places.shape == (2 * 9 * 3, 2)


def test_it_is_searched_by_the_exact_similarity_of_sets(tmp_path: Path) -> None:
    torch.manual_seed(0)
    backbone = save(stirred(vit()), tmp_path / "vit")
    config = NewcomerConfig(image=PixelConfig(backbone=backbone, size=SIDE))
    tokenizer = WordTokenizer(Vocabulary.build([" ".join(WORDS)], at_least=1))
    stirred(Newcomer(config, tokenizer)).save_pretrained(tmp_path / "model")
    pictures = fill(tmp_path / "pictures", 8)
    with Index.create(tmp_path / "pictures.db", tmp_path / "model", device="cpu") as index:
        assert isinstance(index.embedder, Embedder)
        assert len(index.sync(pictures).problems) == 0
        answer = index.search("two dog", top=8)
    paths = [result.path for result in answer.results]
    with Index.open(tmp_path / "pictures.db", device="cpu") as again:
        assert [result.path for result in again.search("two dog", top=8).results] == paths
    scores = Matcher.from_pretrained(tmp_path / "model").similarity(paths, ["two dog"])[:, 0]
    assert len(paths) == 8
    assert float(scores.std()) > 1e-3
    np.testing.assert_allclose([result.score for result in answer.results], scores, atol=1e-4)
    np.testing.assert_allclose(scores, scores.sort(descending=True).values, atol=1e-4)
