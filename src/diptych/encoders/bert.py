"""BERT's encoder (Devlin et al., 2019), small and quick to load; weights are named as in Hugging Face's BertModel."""

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional as F

from diptych.common.config import read_json
from diptych.common.errors import DiptychError


@dataclass(frozen=True)
class BertConfig:
    """What of Hugging Face's config.json matters here."""

    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    intermediate_size: int
    max_position_embeddings: int
    type_vocab_size: int = 2
    layer_norm_eps: float = 1e-12
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1

    @classmethod
    def read(cls, folder: Path) -> "BertConfig | None":
        """Of a folder with a plain BERT; None where it holds anything else."""
        path = folder / "config.json"
        tree = read_json(path) if path.is_file() else None
        if not isinstance(tree, dict) or tree.get("model_type") != "bert":
            return None
        plain = tree.get("hidden_act") == "gelu" and not tree.get("is_decoder")
        if not plain or tree.get("position_embedding_type", "absolute") != "absolute":
            return None
        names = {field.name for field in fields(cls)}
        return cls(**{name: value for name, value in tree.items() if name in names})

    def save_pretrained(self, folder: str) -> None:
        """config.json, as Hugging Face reads it."""
        kind = {"model_type": "bert", "architectures": ["BertModel"], "hidden_act": "gelu"}
        Path(folder).mkdir(parents=True, exist_ok=True)
        tree = json.dumps({**kind, **asdict(self)}, indent=2)
        (Path(folder) / "config.json").write_text(tree + "\n", encoding="utf-8")


class BertStates(NamedTuple):
    """last_hidden_state: (n, pieces, hidden)."""

    last_hidden_state: Tensor


class Bert(nn.Module):
    """Embeddings and layers; no pooler."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.config = config
        self.embeddings = _Embeddings(config)
        self.encoder = nn.Module()
        self.encoder.layer = nn.ModuleList(_Layer(config) for _ in range(config.num_hidden_layers))

    @classmethod
    def load(cls, folder: Path, config: BertConfig) -> "Bert":
        """With the weights of a folder."""
        path = folder / "model.safetensors"
        weights = {
            name.removeprefix("bert."): w.float() for name, w in load_file(path).items() if w.is_floating_point()
        }
        bert = cls(config)
        wanted = bert.state_dict()
        missing = next((name for name in wanted if name not in weights), None)
        if missing is not None:
            raise DiptychError(f"expected the weight {missing!r} of a BERT", where=path)
        bert.load_state_dict({name: weights[name] for name in wanted})
        return bert.eval()

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> BertStates:
        """(n, pieces), (n, pieces) -> (n, pieces, hidden); a sentence's states do not depend on its padding."""
        most = self.config.max_position_embeddings
        if input_ids.shape[1] > most:
            raise DiptychError(f"a sentence has {input_ids.shape[1]} pieces; this text encoder takes {most}")
        states = self.embeddings(input_ids)
        mask = attention_mask.bool()[:, None, None, :]
        for layer in self.encoder.layer:  # type: ignore[union-attr]
            states = layer(states, mask)
        return BertStates(states)


class _Embeddings(nn.Module):
    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.word_embeddings = nn.Embedding(config.vocab_size, config.hidden_size)
        self.position_embeddings = nn.Embedding(config.max_position_embeddings, config.hidden_size)
        self.token_type_embeddings = nn.Embedding(config.type_vocab_size, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(self, ids: Tensor) -> Tensor:
        places = torch.arange(ids.shape[1], device=ids.device)
        states = self.word_embeddings(ids) + self.token_type_embeddings.weight[0] + self.position_embeddings(places)
        out: Tensor = self.dropout(self.LayerNorm(states))
        return out


class _SelfAttention(nn.Module):
    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.heads, self.dropped = config.num_attention_heads, config.attention_probs_dropout_prob
        self.query = nn.Linear(config.hidden_size, config.hidden_size)
        self.key = nn.Linear(config.hidden_size, config.hidden_size)
        self.value = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(self, states: Tensor, mask: Tensor) -> Tensor:
        q, k, v = (
            part(states).unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in (self.query, self.key, self.value)
        )
        dropped = self.dropped if self.training else 0.0
        return F.scaled_dot_product_attention(q, k, v, mask, dropped).transpose(1, 2).flatten(2)


class _Output(nn.Module):
    """A Linear whose result is added to what was there before, normalised."""

    def __init__(self, config: BertConfig, inputs: int) -> None:
        super().__init__()
        self.dense = nn.Linear(inputs, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(self, states: Tensor, before: Tensor) -> Tensor:
        out: Tensor = self.LayerNorm(self.dropout(self.dense(states)) + before)
        return out


class _Layer(nn.Module):
    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.attention = nn.ModuleDict({"self": _SelfAttention(config), "output": _Output(config, config.hidden_size)})
        self.intermediate = nn.ModuleDict({"dense": nn.Linear(config.hidden_size, config.intermediate_size)})
        self.output = _Output(config, config.intermediate_size)

    def forward(self, states: Tensor, mask: Tensor) -> Tensor:
        states = self.attention["output"](self.attention["self"](states, mask), states)
        out: Tensor = self.output(F.gelu(self.intermediate["dense"](states)), states)
        return out
