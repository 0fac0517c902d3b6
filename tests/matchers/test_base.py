import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

from diptych.common.errors import DiptychError
from diptych.encoders.images import FeatureConfig
from diptych.encoders.texts import GRUConfig, TransformerConfig
from diptych.matchers.base import Matcher
from diptych.matchers.catalog import build_matcher, build_tokenizer
from diptych.matchers.vse import VSEConfig
from tests.matchers import inputs

CONFIG = VSEConfig(dim=8, image=FeatureConfig(feature_dim=inputs.FEATURE_DIM), text=GRUConfig(word_dim=5))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    build_matcher(CONFIG, inputs.word_tokenizer()).save_pretrained(tmp_path / "saved", card="# A card\n")
    return tmp_path / "saved"


def change_weights(folder: Path, change: Any) -> None:
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")


def test_a_missing_weight_is_named(folder: Path) -> None:
    change_weights(folder, lambda t: t.pop("image_encoder.fc.bias"))
    with pytest.raises(DiptychError, match=r"model\.safetensors.*'image_encoder\.fc\.bias' is missing"):
        Matcher.from_pretrained(folder)


def test_a_left_over_weight_is_named(folder: Path) -> None:
    change_weights(folder, lambda t: t.update({"spare": torch.zeros(1)}))
    with pytest.raises(DiptychError, match="'spare' is left over"):
        Matcher.from_pretrained(folder)


def test_a_misshapen_weight_is_named(folder: Path) -> None:
    change_weights(folder, lambda t: t.update({"image_encoder.fc.bias": torch.zeros(3)}))
    with pytest.raises(DiptychError, match=r"'image_encoder\.fc\.bias' has shape \(3,\); expected \(8,\)"):
        Matcher.from_pretrained(folder)


@pytest.mark.parametrize(
    ("break_it", "words"),
    [
        (lambda f: (f / "model.safetensors").write_bytes(b"nonsense"), "not a readable safetensors"),
        (lambda f: (f / "model.safetensors").unlink(), "no such file"),
        (lambda f: (f / "config.json").write_text("{"), "line 1"),
        (lambda f: (f / "config.json").write_text('{"format": "other"}'), "format"),
        (lambda f: (f / "vocabulary.json").write_text('{"words": []}'), "word2idx"),
        (lambda f: shutil.rmtree(f), "no such folder"),
    ],
)
def test_a_broken_folder_is_said(folder: Path, break_it: Any, words: str) -> None:
    break_it(folder)
    with pytest.raises(DiptychError, match=words):
        Matcher.from_pretrained(folder)


def test_an_unknown_kind_names_its_neighbour(folder: Path) -> None:
    tree = json.loads((folder / "config.json").read_text())
    tree["matcher"]["kind"] = "vsse"
    (folder / "config.json").write_text(json.dumps(tree))
    with pytest.raises(DiptychError, match=r"'vsse'.*'vse'"):
        Matcher.from_pretrained(folder)


def test_half_precision_weights_are_half_the_size(tmp_path: Path) -> None:
    matcher = build_matcher(CONFIG, inputs.word_tokenizer())
    matcher.save_pretrained(tmp_path / "whole")
    matcher.save_pretrained(tmp_path / "half", dtype=torch.float16)
    sizes = [(tmp_path / name / "model.safetensors").stat().st_size for name in ("half", "whole")]
    assert sizes[0] < 0.7 * sizes[1]
    loaded = Matcher.from_pretrained(tmp_path / "half")
    assert {p.dtype for p in loaded.parameters()} == {torch.float32}


def test_scores_from_arrays_and_in_any_batch_size() -> None:
    matcher = build_matcher(CONFIG, inputs.word_tokenizer()).eval()
    arrays = [np.random.default_rng(i).standard_normal((n, inputs.FEATURE_DIM)) for i, n in enumerate([2, 5, 1])]
    whole = matcher.encode_images(arrays)
    torch.testing.assert_close(matcher.encode_images(arrays, batch_size=1).vectors, whole.vectors)
    texts = matcher.encode_texts(["a red dog", "cat"], batch_size=1)
    torch.testing.assert_close(matcher.score(whole, texts), matcher.similarity(arrays, ["a red dog", "cat"]))
    ranked = matcher.rank("cat", arrays, top=2)
    assert len(ranked) == 2
    assert ranked[0][1] >= ranked[1][1]


def test_the_mode_of_every_part_comes_back_after_inference() -> None:
    matcher = build_matcher(CONFIG, inputs.word_tokenizer()).train()
    matcher.image_encoder.fc.eval()
    matcher.encode_texts(["dog"])
    assert matcher.training
    assert not matcher.image_encoder.fc.training


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda m: m.encode_images([np.zeros((2, 5))]), "5 dimensions.*expects 6"),
        (lambda m: m.encode_images([Image.new("RGB", (8, 8))]), "names no backbone"),
    ],
)
def test_bad_input_is_said_in_one_sentence(call: Any, words: str) -> None:
    with pytest.raises(DiptychError, match=words):
        call(build_matcher(CONFIG, inputs.word_tokenizer()))


def test_another_matchers_tuned_text_encoder_can_be_taken_over(tmp_path: Path, tiny_bert: str) -> None:
    image = FeatureConfig(feature_dim=inputs.FEATURE_DIM)
    first = VSEConfig(dim=8, image=image, text=TransformerConfig(name=tiny_bert))
    tuned = build_matcher(first, build_tokenizer(first.text, None))
    with torch.no_grad():
        for parameter in tuned.text_encoder.backbone.parameters():
            parameter.add_(0.1)
    tuned.save_pretrained(tmp_path / "tuned")
    second = VSEConfig(dim=4, image=image, text=TransformerConfig(name=str(tmp_path / "tuned"), frozen=True))
    taken = build_matcher(second, build_tokenizer(second.text, None))
    expected = tuned.text_encoder.backbone.state_dict()
    for name, tensor in taken.text_encoder.backbone.state_dict().items():
        torch.testing.assert_close(tensor, expected[name])


def test_pushing_to_the_hub_uploads_the_whole_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, Any]] = []

    class Api:
        def create_repo(self, repository: str, private: bool, exist_ok: bool) -> None:
            calls.append(("create", (repository, private, exist_ok)))

        def upload_folder(self, repo_id: str, folder_path: str) -> str:
            calls.append(("upload", sorted(p.name for p in Path(folder_path).iterdir())))
            return "https://hub.invalid/commit"

    import huggingface_hub

    monkeypatch.setattr(huggingface_hub, "HfApi", Api)
    address = build_matcher(CONFIG, inputs.word_tokenizer()).push_to_hub("me/mine", private=True, card="# Card\n")
    assert address == "https://hub.invalid/commit"
    assert calls == [
        ("create", ("me/mine", True, True)),
        ("upload", ["README.md", "config.json", "model.safetensors", "vocabulary.json"]),
    ]


def test_a_feature_matcher_computes_the_features_of_new_pictures(tmp_path: Path) -> None:
    from tests.encoders.tiny_models import detr, save

    folder = save(detr(), tmp_path / "detr")
    config = VSEConfig(
        dim=8,
        image=FeatureConfig(feature_dim=16, backbone=str(folder), size=32, regions=3),
        text=GRUConfig(word_dim=5),
    )
    matcher = build_matcher(config, inputs.word_tokenizer()).eval()
    pictures = [Image.new("RGB", (40, 30), colour) for colour in ("red", "blue")]
    found = matcher.extractor().regions(pictures)
    torch.testing.assert_close(matcher.encode_images(pictures).vectors, matcher.encode_images(found).vectors)
