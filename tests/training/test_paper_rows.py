"""Which published row stands beside which recipe and variant: all of them, told here with the numbers of the papers."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from diptych.common.errors import DiptychError
from diptych.encoders.images import FeatureConfig, PixelConfig
from diptych.encoders.texts import GRUConfig, TransformerConfig
from diptych.evaluation.evaluate import evaluate_scores
from diptych.evaluation.protocols import DATASETS, PICTURES
from diptych.evaluation.published import published
from diptych.training.ablation import Row, ablation_table
from diptych.training.data import FilesConfig
from diptych.training.paper_rows import PaperRow, paper_rows, protocol_of, row_beside
from diptych.training.recipe import Recipe, read_recipe, variant_names

FOLDER = Path(__file__).parent.parent.parent / "recipes"
RECIPES = sorted(FOLDER.glob("*.toml"))
# The numbers as the papers print them. What is not here has no row: a paper prints none of it.
BESIDE: dict[str, list[tuple[str | None, str, str]]] = {
    "camp-coco": [
        (None, "coco-1k", "72.3 94.8 98.3 58.5 87.9 95.0"),
        (None, "coco-5k", "50.1 82.1 89.7 39.0 68.9 80.2"),
    ],
    "camp-flickr30k": [
        (None, "flickr30k", "68.1 89.7 95.2 51.5 77.1 85.3"),
        ("base", "flickr30k", "63.5 87.1 93.1 46.2 74.2 83.4"),
        ("no-cross-attention", "flickr30k", "59.7 83.5 88.9 41.2 65.5 79.1"),
        ("no-fusion", "flickr30k", "65.6 88.0 94.9 48.2 75.7 84.9"),
        ("no-gates", "flickr30k", "61.7 86.3 92.6 45.1 72.1 80.7"),
        ("no-residual", "flickr30k", "56.7 83.9 91.5 43.7 72.6 79.3"),
        ("no-attention-aggregation", "flickr30k", "63.4 86.8 93.5 47.5 73.1 82.8"),
        ("concat", "flickr30k", "66.3 89.0 94.3 51.0 74.1 83.3"),
        ("product", "flickr30k", "61.5 87.3 93.2 49.9 74.0 80.5"),
        ("joint-embedding", "flickr30k", "62.0 87.8 92.4 46.3 73.7 80.3"),
        ("mlp-ranking", "flickr30k", "60.9 87.5 92.4 44.3 70.1 79.4"),
        ("bce-without-hardest", "flickr30k", "65.5 89.1 94.6 50.8 76.1 83.2"),
    ],
    "dive-coco": [
        ("random-slots", "coco-5k", "427.2 -3.5"),
        ("gru", "coco-5k", "423.3 -7.4"),
        ("no-global-feature", "coco-5k", "342 -88.7"),
        ("slot-attention", "coco-5k", "0.74 -"),
    ],
    "mmca-coco": [
        (None, "coco-1k", "74.8 95.6 97.7 61.6 89.8 95.2"),
        (None, "coco-5k", "54.0 82.5 90.7 38.7 69.7 80.8"),
        ("d64", "coco-1k", "71.7 92.3 95.6 57.5 84.3 92.2"),
        ("d128", "coco-1k", "73.7 93.8 97.0 60.7 90.8 94.7"),
        ("d512", "coco-1k", "74.1 94.2 97.5 60.4 88.5 94.3"),
    ],
    "mmca-flickr30k": [
        (None, "flickr30k", "74.2 92.8 96.4 54.8 81.4 87.8"),
        ("d64", "flickr30k", "71.4 91.0 95.3 52.5 79.6 87.2"),
        ("d128", "flickr30k", "72.6 91.8 96.5 53.5 80.4 86.8"),
        ("d512", "flickr30k", "73.6 91.7 95.5 53.9 81.2 88.4"),
        ("alpha-0-1", "flickr30k", "71.7 91.6 95.9 53.8 81.2 89.1"),
        ("alpha-0-4", "flickr30k", "71.8 91.9 95.0 50.9 76.6 84.1"),
        ("alpha-0-8", "flickr30k", "67.1 87.0 91.9 48.5 71.9 78.3"),
    ],
    "scan-coco": [
        ("t2i-lse", "coco-1k", "67.5 92.9 97.6 53.0 85.4 92.9"),
        ("i2t-mean", "coco-1k", "69.2 93.2 97.5 54.4 86.0 93.6"),
    ],
    "scan-flickr30k": [
        (None, "flickr30k", "61.8 87.5 93.7 45.8 74.4 83.0"),
        ("i2t-lse", "flickr30k", "67.7 88.9 94.0 44.0 74.2 82.6"),
    ],
    "vse++-coco": [
        ("strong", "coco-1k", "68.5 92.6 97.1 54.0 85.6 92.7 490.5"),
        ("strong", "coco-5k", "42.9 74.5 85.1 31.7 61.8 74.2 370.2"),
        ("strong-bert", "coco-1k", "67.9 91.9 97.0 54.0 85.6 92.5 488.9"),
        ("strong-bert", "coco-5k", "42.1 72.6 83.9 31.0 61.3 73.7 364.7"),
        ("strong-resnet-152", "coco-1k", "70.9 93.4 97.5 58.2 87.1 93.5 500.6"),
        ("strong-resnet-152", "coco-5k", "46.1 76.8 86.6 35.2 65.6 77.3 387.6"),
        ("strong-wsl-bert", "coco-1k", "79.6 97.1 99.0 66.4 91.1 95.5 528.7"),
        ("strong-wsl-bert", "coco-5k", "57.9 85.2 92.8 44.9 74.5 84.0 439.2"),
    ],
    "vse++-flickr30k": [
        ("strong", "flickr30k", "62.2 86.6 92.3 45.7 73.6 81.9 442.3"),
        ("strong-bert", "flickr30k", "63.4 87.2 92.7 45.6 76.4 84.4 449.7"),
        ("strong-resnet-152", "flickr30k", "64.4 87.3 93.1 49.3 77.5 84.7 456.3"),
        ("strong-wsl-bert", "flickr30k", "80.9 96.6 98.9 65.2 89.5 93.7 524.8"),
    ],
    "vse-infinity-coco": [
        (None, "coco-1k", "78.5 96.0 98.7 61.7 90.3 95.6 520.8"),
        (None, "coco-5k", "56.6 83.6 91.4 39.3 69.9 81.1 421.9"),
        ("no-augmentation", "coco-1k", "74.6 95.0 60.6 89.1"),
        ("visual-augmentation", "coco-1k", "75.4 95.5 61.4 89.5"),
        ("transformer", "coco-1k", "77.4 95.4 61.4 90.1"),
        ("per-dimension", "coco-1k", "76.5 95.9 61.2 89.6"),
        ("features", "coco-1k", "78.0 96.2 61.8 90.2"),
        ("bert", "coco-1k", "79.7 96.4 98.9 64.8 91.4 96.3 527.5"),
        ("bert", "coco-5k", "58.3 85.3 92.3 42.4 72.7 83.2 434.3"),
        ("bert-per-dimension", "coco-1k", "79.3 96.1 64.7 91.3"),
        ("bert-features", "coco-1k", "79.2 96.3 64.7 91.2"),
        ("bert-average-cls", "coco-1k", "67.7 92.6 54.8 85.1"),
        ("bert-average-gpo", "coco-1k", "71.7 93.8 57.5 87.6"),
        ("bert-gpo-cls", "coco-1k", "73.8 94.8 59.2 88.0"),
        ("resnet-152", "coco-1k", "76.5 95.3 98.5 62.9 90.6 95.8 519.6"),
        ("resnet-152", "coco-5k", "55.1 81.9 89.9 40.9 70.6 81.5 419.9"),
        ("grid", "coco-1k", "78.0 95.8 98.5 62.6 90.6 96.0 521.5"),
        ("grid", "coco-5k", "56.2 83.7 90.9 40.8 70.6 81.5 423.7"),
        ("grid-transformer", "coco-1k", "76.6 95.7 62.7 90.7"),
        ("bert-grid", "coco-1k", "80.4 96.8 99.1 66.4 92.1 96.7 531.6"),
        ("bert-grid", "coco-5k", "59.1 85.9 92.8 44.1 74.1 84.0 440.0"),
        ("wsl-bert", "coco-1k", "84.5 98.1 99.4 72.0 93.9 97.5 545.4"),
        ("wsl-bert", "coco-5k", "66.4 89.3 94.6 51.6 79.3 87.6 468.9"),
    ],
    "vse-infinity-flickr30k": [
        (None, "flickr30k", "76.5 94.2 97.7 56.4 83.4 89.9 498.1"),
        ("bert", "flickr30k", "81.7 95.4 97.6 61.4 85.9 91.5 513.5"),
        ("wide", "flickr30k", "-10.8"),
        ("resnet-152", "flickr30k", "77.1 94.5 97.1 58.5 84.1 89.6 500.9"),
        ("grid", "flickr30k", "77.9 93.7 97.4 57.5 83.4 90.2 500.2"),
        ("bert-grid", "flickr30k", "81.5 97.1 98.5 63.7 88.3 93.2 522.3"),
        ("wsl-bert", "flickr30k", "88.4 98.3 99.5 74.2 93.7 96.8 550.9"),
    ],
}

# Rows of the papers' own methods and ablations that no single recipe trains, and why.
ELSEWHERE = {
    "Region+Grid": "the mean of two runs' scores: diptych evaluate RUN RUN --ensemble",
    "of two models": "the mean of two runs' scores: diptych evaluate RUN RUN --ensemble",
}
OWN = {
    "camp/table-1": "CAMP (ours)", "camp/table-2": "CAMP (ours)", "camp/table-3": "", "mmca/table-1": "MMCA",
    "mmca/table-2": "MMCA", "mmca/table-3": "MMCA", "mmca/table-4": "", "mmca/table-5": "", "mmca/table-6": "",
    "vse-infinity/table-1": "", "vse-infinity/table-2": "", "vse-infinity/table-3": "", "vse-infinity/table-4": "Our:",
    "vse-infinity/table-5": "Our:", "vse-infinity/table-7": "", "vse-infinity/table-8": "", "dive/section-b1-wide": "",
    "dive/section-b3": "",
}  # fmt: skip


def each() -> list[tuple[str, str | None, Recipe]]:
    return [(path.stem, v, read_recipe(path, v)) for path in RECIPES for v in [None, *variant_names(path)]]


def numbers(found: PaperRow) -> str:
    digits = "g" if found.table.id.startswith("dive/") else ".1f"
    return " ".join("-" if v is None else f"{v:{digits}}" for v in found.row.values.values())


@pytest.mark.parametrize("path", RECIPES, ids=lambda p: p.stem)
def test_the_rows_of_every_recipe_and_variant_are_the_papers(path: Path) -> None:
    told = [
        (variant, found.row.protocol, numbers(found))
        for variant in [None, *variant_names(path)]
        for found in paper_rows(read_recipe(path, variant))
    ]
    assert told == BESIDE.get(path.stem, [])


@pytest.mark.parametrize(("name", "variant", "recipe"), each(), ids=str)
def test_a_row_is_of_the_dataset_and_the_features(name: str, variant: str | None, recipe: Recipe) -> None:
    for found in paper_rows(recipe):
        assert recipe.dataset is not None
        assert found.row.protocol in DATASETS[recipe.dataset]
        assert isinstance(recipe.data, FilesConfig)
        assert {"coco": "coco", "flickr30k": "30k"}[recipe.dataset] in str(recipe.data.path)
        image, text = recipe.model.image, recipe.model.text
        backbones = found.row.labels.get("backbones", "")
        if not backbones:  # CAMP, MMCA, DivE and SCAN as CAMP cites it: regions of bottom-up attention
            assert isinstance(image, FeatureConfig)
            assert image.feature_dim == 2048
            continue
        assert isinstance(text, GRUConfig if backbones.endswith("BiGRU") else TransformerConfig)
        if isinstance(text, TransformerConfig):
            assert text.name == "bert-base-uncased"
        else:
            assert text.bidirectional
        grid = "Grid" in (found.row.labels.get("features", ""), backbones[6:10])
        assert isinstance(image, PixelConfig if grid else FeatureConfig)
        if isinstance(image, PixelConfig):
            assert image.size == 512
            network = {"BUTD": "butd-resnet-101", "ResNet-152": "resnet-152", "WSL": "resnext101_32x8"}
            (meant,) = [part for key, part in network.items() if key in backbones]
            assert meant in image.backbone
            assert (image.style == "detector") == ("BUTD" in backbones)
            rate = recipe.training.multipliers["image_encoder.backbone"]
            assert rate == (0.1 if "on IN +" in backbones else 0.01)  # the supplement, 1.1
        else:
            assert image.feature_dim == 2048
            assert "BUTD" in backbones


def test_no_two_variants_share_a_row() -> None:
    shared = Counter((f.table.id, f.row.address) for _, _, recipe in each() for f in paper_rows(recipe))
    assert [row for row, count in shared.items() if count > 1] == []


@pytest.mark.parametrize("id", OWN)
def test_every_row_of_a_papers_own_is_found(id: str) -> None:
    """By name, or since a row of the same numbers stands elsewhere: the ablations repeat the main row."""
    named = {(f.table.id, f.row.address) for _, _, recipe in each() for f in paper_rows(recipe)}
    figures = [f.row.figures() for _, _, recipe in each() for f in paper_rows(recipe)]
    for row in published(id).rows:
        if not row.method.startswith(OWN[id]) or any(label in ELSEWHERE for label in row.labels.values()):
            continue
        again = any(row.figures().items() <= other.items() for other in figures)
        assert (id, row.address) in named or again, row.address


def test_the_ablations_that_dive_and_vse_infinity_print_are_what_their_variants_change() -> None:
    dive = read_recipe(FOLDER / "dive-coco.toml", "slot-attention").model
    assert (dive.initial_slots, dive.update, dive.global_feature) == ("random", "gru", False)
    wide = read_recipe(FOLDER / "vse-infinity-flickr30k.toml", "wide").model
    assert wide.dim == 1024 * 4 * 4  # two sets of four vectors: sixteen products of 1,024 numbers
    for d in (64, 128, 512):
        model = read_recipe(FOLDER / "mmca-coco.toml", f"d{d}").model
        assert (model.dim, model.filters) == (d, None)
    for dataset in ("coco", "flickr30k"):
        loss = read_recipe(FOLDER / f"dive-{dataset}.toml", "resnext-bert").loss
        assert (loss.all_negatives_epochs, loss.first_negatives) == (1, "mean")
        camp = read_recipe(FOLDER / f"camp-{dataset}.toml", "bce-without-hardest").loss
        assert (camp.kind, camp.negatives) == ("bce", "mean")


def test_how_runs_are_judged() -> None:
    judged = {
        path.stem: protocol_of([read_recipe(path, v) for v in [None, *variant_names(path)]])
        for path in RECIPES
        if path.stem.endswith(("coco", "flickr30k"))
    }
    assert {name for name, protocol in judged.items() if protocol == "flickr30k"} == {
        name for name in judged if name.endswith("flickr30k") and "clip" not in name
    }
    assert {name: p for name, p in judged.items() if name.endswith("coco")} == {
        "camp-coco": "coco-1k", "dive-coco": "coco-5k", "mmca-coco": "coco-1k", "scan-coco": "coco-1k",
        "vse++-coco": "coco-1k", "vse-infinity-coco": "coco-1k",
    }  # fmt: skip
    assert protocol_of([read_recipe(FOLDER / "camp-scenes.toml")]) == "all-pairs"
    assert protocol_of([read_recipe(FOLDER / "dive-flickr30k.toml")]) == "flickr30k"


def test_what_the_command_line_changed_is_not_the_papers() -> None:
    path = FOLDER / "camp-flickr30k.toml"
    same = ("data.path=/my/f30k_precomp", "training.seed=3", "training.workers=4", "training.score-rows=8")
    assert [f.row.label for f in paper_rows(read_recipe(path, None, same))] == ["CAMP"]
    for change in ("training.epochs=3", "model.dim=256", "loss.negatives=all", "data.test=val", "training.clip=1.0"):
        recipe = read_recipe(path, "no-gates", (*same, change))
        assert recipe.changed == (change.partition("=")[0].replace("-", "_"),)
        assert paper_rows(recipe) == []


def test_a_row_stands_beside_as_many_pictures_as_the_paper_had() -> None:
    recipe = read_recipe(FOLDER / "camp-flickr30k.toml", "no-gates")
    rng = np.random.default_rng(0)
    few = evaluate_scores(rng.standard_normal((9, 45)), protocol="flickr30k")
    whole = evaluate_scores(rng.standard_normal((PICTURES["flickr30k"], 5000)), protocol="flickr30k")
    other = evaluate_scores(rng.standard_normal((PICTURES["flickr30k"], 5000)))
    assert row_beside(recipe, [few]) is None
    assert row_beside(recipe, [other]) is None
    row = row_beside(recipe, [whole])
    assert row is not None
    assert row.method == "Fusion w/o gates"
    assert row_beside(recipe, [whole, few]) is None


def test_what_a_recipe_says_wrongly_is_named(tmp_path: Path) -> None:
    text = (FOLDER / "vse-infinity-flickr30k.toml").read_text()
    (tmp_path / "r.toml").write_text(text.replace('dataset = "flickr30k"\n', ""))
    with pytest.raises(DiptychError, match=r"r: dataset: 'Our: VSE∞ .*' of vse-infinity/table-4 is of coco and of fl"):
        paper_rows(read_recipe(tmp_path / "r.toml"))
    (tmp_path / "r.toml").write_text(text.replace("Our: VSE∞ (ResNet-101 F", "Our: VSE∞ (X", 1))
    with pytest.raises(DiptychError, match=r"vse-infinity/table-4: no row 'Our: VSE∞ .*did you mean"):
        paper_rows(read_recipe(tmp_path / "r.toml"))
    main = 'paper_row = "Our: VSE∞ (ResNet-101 Faster-RCNN on IN+VG (BUTD) + BiGRU, Region)"'
    (tmp_path / "r.toml").write_text(text.replace(main, 'paper_row = "Our: VSE∞"', 1))
    with pytest.raises(DiptychError, match="'Our: VSE∞' fits several rows"):
        paper_rows(read_recipe(tmp_path / "r.toml"))


def test_what_a_row_prints_besides_recalls_is_noted() -> None:
    recipe = read_recipe(FOLDER / "vse-infinity-flickr30k.toml", "wide")
    (found,) = paper_rows(recipe)
    evaluation = evaluate_scores(np.random.default_rng(0).standard_normal((6, 30)))
    table = ablation_table([Row("wide", (evaluation,), found.row)], "title")
    assert table.notes[1] == "VSE∞, larger embedding: change of rsum -10.8"
    assert table.rows[1][1:] == (None,) * 7
    assert table.records[1]["change of rsum"] == -10.8
    changed = ablation_table([Row("wide", (evaluation,), None)], "title", ("training.epochs",))
    assert changed.notes == ("ours: one seed", "the paper's rows are left out: training.epochs was changed")
