"""Checkpoints as the authors saved them, and the scores of what they become."""

from argparse import Namespace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from diptych.data.batches import ImageBatch, Tokens
from diptych.data.vocabulary import Vocabulary
from diptych.matchers.base import Matcher
from diptych.matchers.convert.convert import convert, save_converted
from tests.matchers import inputs


def vocabulary() -> Vocabulary:
    return inputs.word_tokenizer().vocabulary


def vocabulary_file(folder: Path) -> Path:
    vocabulary().save(folder / "vocab.json")
    return folder / "vocab.json"


def state(*modules: nn.Module) -> list[dict[str, Tensor]]:
    return [module.state_dict() for module in modules]


def save(path: Path, model: Any, old: bool = False, **opt: Any) -> Path:
    """As the authors' train.py did; without settings where none are given."""
    content = {"epoch": 12, "model": model, "best_rsum": 431.5, "Eiters": 900}
    if opt:
        content["opt"] = Namespace(**opt, learning_rate=0.0002, logger_name="runs/runX")
    torch.save(content, path, _use_new_zipfile_serialization=not old)
    return path


def become(path: Path, source: str, **arguments: Any) -> Matcher:
    """Converted, written, and loaded again."""
    folder = path.parent / f"{path.stem}-converted"
    save_converted(convert(path, source, **arguments), folder)
    return Matcher.from_pretrained(folder)


def all_scores(matcher: Matcher, images: ImageBatch, texts: Tokens) -> Tensor:
    with matcher.inference():
        return matcher.score(*matcher(images, texts))


def small_bert(pieces: int) -> Any:
    """With the pooler and heads of 64, as every published BERT has them."""
    from transformers import BertConfig, BertModel

    config = BertConfig(
        vocab_size=pieces, hidden_size=128, num_hidden_layers=2, num_attention_heads=2, intermediate_size=48,
        max_position_embeddings=40,
    )  # fmt: skip
    return BertModel(config).eval()


def with_position_ids(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Older versions of transformers saved this constant."""
    return {**state, "bert.embeddings.position_ids": torch.arange(40).unsqueeze(0)}
