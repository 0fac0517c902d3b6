"""Our BERT against Hugging Face's."""

from pathlib import Path

import pytest
import torch
from transformers import AutoModel
from transformers import BertConfig as TheirConfig

from diptych.common.errors import DiptychError
from diptych.encoders.bert import Bert, BertConfig


def ours(folder: str) -> Bert:
    config = BertConfig.read(Path(folder))
    assert config is not None
    return Bert.load(Path(folder), config)


@pytest.mark.parametrize("shape", [(1, 1), (3, 7), (2, 64)])
def test_states_are_those_of_hugging_face(tiny_bert: str, shape: tuple[int, int]) -> None:
    theirs = AutoModel.from_pretrained(tiny_bert).eval()
    ids = torch.randint(5, 20, shape)
    mask = torch.ones(shape, dtype=torch.long)
    mask[0, (shape[1] + 1) // 2 :] = 0
    with torch.inference_mode():
        expected = theirs(input_ids=ids, attention_mask=mask).last_hidden_state
        found = ours(tiny_bert)(ids, mask).last_hidden_state
    kept = mask.bool()
    torch.testing.assert_close(found[kept], expected[kept], atol=1e-5, rtol=1e-4)


def test_padding_changes_nothing(tiny_bert: str) -> None:
    model, ids = ours(tiny_bert), torch.tensor([[2, 7, 9, 3]])
    padded = torch.tensor([[2, 7, 9, 3, 0, 0, 0]])
    with torch.inference_mode():
        short = model(ids, torch.ones_like(ids)).last_hidden_state
        long = model(padded, (padded != 0).long()).last_hidden_state[:, :4]
    torch.testing.assert_close(short, long, atol=1e-6, rtol=1e-5)


def test_every_weight_gets_a_gradient_and_dropout_is_there(tiny_bert: str) -> None:
    model, ids = ours(tiny_bert).train(), torch.tensor([[2, 7, 9, 3]])
    first = model(ids, torch.ones_like(ids)).last_hidden_state
    second = model(ids, torch.ones_like(ids)).last_hidden_state
    assert not torch.equal(first, second)
    first.square().sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_its_configuration_is_read_by_hugging_face(tiny_bert: str, tmp_path: Path) -> None:
    ours(tiny_bert).config.save_pretrained(str(tmp_path))
    assert TheirConfig.from_pretrained(tmp_path).hidden_size == TheirConfig.from_pretrained(tiny_bert).hidden_size
    assert BertConfig.read(tmp_path) == BertConfig.read(Path(tiny_bert))


@pytest.mark.parametrize(
    "change", [{"model_type": "roberta"}, {"hidden_act": "relu"}, {"position_embedding_type": "relative_key"}]
)
def test_anything_else_is_left_to_hugging_face(tiny_bert: str, tmp_path: Path, change: dict[str, str]) -> None:
    import json

    tree = json.loads((Path(tiny_bert) / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(tree | change))
    assert BertConfig.read(tmp_path) is None


def test_a_missing_weight_is_named(tiny_bert: str, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    weights = load_file(Path(tiny_bert) / "model.safetensors")
    del weights["encoder.layer.1.output.dense.weight"]
    save_file(weights, tmp_path / "model.safetensors")
    config = BertConfig.read(Path(tiny_bert))
    assert config is not None
    with pytest.raises(DiptychError, match=r"encoder\.layer\.1\.output\.dense\.weight"):
        Bert.load(tmp_path, config)
