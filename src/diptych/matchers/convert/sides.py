"""The encoders that several papers share: how their tensors tell the configuration, and where they go."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from diptych.common.errors import DiptychError
from diptych.data.tokens import PieceTokenizer, Tokenizer, WordTokenizer
from diptych.data.vocabulary import Vocabulary
from diptych.encoders.gpo import GPOConfig
from diptych.encoders.sources import text_source
from diptych.encoders.texts import GRUConfig, TextConfig, TransformerConfig
from diptych.matchers.convert.checkpoint import Checkpoint, shown

FC = {"image.fc.": "image_encoder.fc."}
WORDS = {"text.embed.": "text_encoder.embed.", "text.rnn.": "text_encoder.rnn."}
PIECES = {"text.bert.": "text_encoder.backbone.", "text.linear.": "text_encoder.fc."}
PIECES_UNUSED = {
    "text.bert.pooler.": "BERT's pooler is never used",
    "text.bert.embeddings.position_ids": "a constant of BERT",
}
HEAD_DIM = 64  # of every published BERT


@dataclass(frozen=True)
class Words:
    """Where a text encoder's words come from.

    vocabulary: of a GRU
    tokenizer: of BERT, a folder or a hub name
    """

    vocabulary: Vocabulary | None
    tokenizer: str


@dataclass(frozen=True)
class TextSide:
    """A text encoder that was recognised: its configuration, its tokenizer, and what rebuilding it needs."""

    config: TextConfig
    tokenizer: Tokenizer
    names: Mapping[str, str]
    unused: Mapping[str, str]
    assets: Mapping[str, Any]


def linear_shape(checkpoint: Checkpoint, name: str) -> tuple[int, int]:
    """Outputs and inputs of a Linear."""
    rows, columns = checkpoint.shape(name, 2)
    return rows, columns


def gru_side(
    checkpoint: Checkpoint, words: Words, bidirectional: bool | None = None, limit: int | None = None
) -> TextSide:
    """Word embeddings and a GRU; `bidirectional` where the paper says so, else as the tensors say."""
    size, word_dim = checkpoint.shape("text.embed.weight", 2)
    if words.vocabulary is None:
        raise DiptychError(
            f"the words of its {size:,} embeddings are not in the file; give them with --vocabulary",
            where=checkpoint.path,
        )
    if len(words.vocabulary) != size:
        raise DiptychError(
            f"{shown('text.embed.weight')} has {size:,} rows, and the vocabulary has "
            f"{len(words.vocabulary):,} words; expected the one that the model was trained with",
            where=checkpoint.path,
        )
    if bidirectional is None:
        bidirectional = any(name.endswith("_reverse") for name in checkpoint.starting("text.rnn."))
    layers = max(1, checkpoint.count("text.rnn.bias_hh_l"), checkpoint.count("text.rnn.weight_ih_l"))
    config = GRUConfig(word_dim=word_dim, bidirectional=bidirectional, layers=layers, limit=limit)
    return TextSide(config, WordTokenizer(words.vocabulary, limit), WORDS, {}, {})


def bert_side(checkpoint: Checkpoint, words: Words) -> TextSide:
    """A BERT with Hugging Face's names, its architecture read from the shapes."""
    if words.vocabulary is not None:
        raise DiptychError("its text encoder is BERT, which needs no --vocabulary", where=checkpoint.path)
    embeddings, layer = "text.bert.embeddings", "text.bert.encoder.layer."
    size, hidden = checkpoint.shape(f"{embeddings}.word_embeddings.weight", 2)
    architecture = {
        "model_type": "bert",
        "architectures": ["BertModel"],
        "vocab_size": size,
        "hidden_size": hidden,
        "num_hidden_layers": checkpoint.count(layer, "."),
        "num_attention_heads": max(1, hidden // HEAD_DIM),
        "intermediate_size": checkpoint.shape(f"{layer}0.intermediate.dense.weight", 2)[0],
        "max_position_embeddings": checkpoint.shape(f"{embeddings}.position_embeddings.weight", 2)[0],
        "type_vocab_size": checkpoint.shape(f"{embeddings}.token_type_embeddings.weight", 2)[0],
    }
    tokenizer = _pieces(words.tokenizer)
    if tokenizer.size != size:
        raise DiptychError(
            f"{shown(f'{embeddings}.word_embeddings.weight')} has {size:,} rows, and the tokenizer "
            f"{words.tokenizer} has {tokenizer.size:,} pieces; expected the one that the model was trained with",
            where=checkpoint.path,
        )
    name = Path(words.tokenizer).resolve().name if Path(words.tokenizer).is_dir() else words.tokenizer
    assets = {"text_backbone/config.json": architecture}
    return TextSide(TransformerConfig(name=name), tokenizer, PIECES, PIECES_UNUSED, assets)


def _pieces(source: str) -> PieceTokenizer:
    try:
        return PieceTokenizer.load(text_source(source))
    except DiptychError as error:
        raise DiptychError(f"--tokenizer: {error}") from None


def text_side(checkpoint: Checkpoint, words: Words, bidirectional: bool | None = None) -> TextSide:
    """BERT or GRU, whichever is there."""
    if checkpoint.starting("text.bert."):
        return bert_side(checkpoint, words)
    return gru_side(checkpoint, words, bidirectional)


def gpo_config(checkpoint: Checkpoint, prefix: str) -> GPOConfig:
    """The generator of a GPO's coefficients."""
    rows, columns = checkpoint.shape(f"{prefix}.gru.weight_ih_l0", 2)
    return GPOConfig(position_dim=columns, hidden=rows // 3)
