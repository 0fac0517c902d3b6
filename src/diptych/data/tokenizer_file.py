"""Word pieces from a tokenizer.json, without the large library that usually stands around it."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from diptych.common.config import read_json
from diptych.common.errors import DiptychError
from diptych.data.batches import Tokens, pad_tokens

_SPECIAL = ("cls_token", "sep_token", "pad_token", "mask_token", "unk_token", "bos_token", "eos_token")


class FilePieceTokenizer:
    """The tokenizer of a folder with tokenizer.json, at most `limit` pieces including the special ones."""

    def __init__(self, folder: Path, limit: int | None = None) -> None:
        from tokenizers import Tokenizer

        self.limit = limit
        try:
            self.raw = Tokenizer.from_file(str(folder / "tokenizer.json"))
        except Exception as error:  # its reader raises nothing more particular
            raise DiptychError(f"not a tokenizer: {error}", where=folder / "tokenizer.json") from None
        self._file, self._settings = self.raw.to_str(), read_settings(folder)
        self.raw.no_padding()
        self.raw.no_truncation()
        if limit is not None:
            self.raw.enable_truncation(limit)
        named = {name: self.raw.token_to_id(str(self._settings.get(name))) for name in _SPECIAL}
        self._ids = {name: number for name, number in named.items() if number is not None}

    @property
    def size(self) -> int:
        """Number of pieces."""
        return int(self.raw.get_vocab_size())

    @property
    def mask_id(self) -> int:
        """[MASK]."""
        return self._ids["mask_token"]

    @property
    def special_ids(self) -> frozenset[int]:
        """[CLS], [SEP], [PAD] and their like."""
        return frozenset(self._ids.values())

    def ids(self, sentence: str) -> list[int]:
        """The pieces with the special ones around them."""
        return list(self.raw.encode(sentence).ids)

    def spans(self, sentence: str) -> list[tuple[int | None, tuple[int, int]]]:
        """Of each piece the word that it belongs to, none for special ones, and its place in the sentence."""
        encoded = self.raw.encode(sentence)
        return list(zip(encoded.word_ids, encoded.offsets, strict=True))

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """The pieces as the tokenizer writes them."""
        return [self.raw.id_to_token(int(i)) or "" for i in ids]

    def pad(self, sentences: Sequence[Sequence[int]]) -> Tokens:
        """Padded with the tokenizer's own padding piece."""
        return pad_tokens(sentences, self._ids["pad_token"])

    def save(self, folder: Path) -> None:
        """The files that it came from, in tokenizer/."""
        target = folder / "tokenizer"
        target.mkdir(parents=True, exist_ok=True)
        (target / "tokenizer.json").write_text(self._file, encoding="utf-8")
        (target / "tokenizer_config.json").write_text(json.dumps(self._settings, indent=2) + "\n", encoding="utf-8")


def read_settings(folder: Path) -> dict[str, Any]:
    """What tokenizer_config.json says; nothing where it is not there."""
    path = folder / "tokenizer_config.json"
    settings = read_json(path) if path.is_file() else {}
    return settings if isinstance(settings, dict) else {}


def has_file_pieces(folder: Path) -> bool:
    """Whether a folder's tokenizer is a BERT-like one that its tokenizer.json says everything about."""
    if not (folder / "tokenizer.json").is_file():
        return False
    settings = read_settings(folder)
    named = all(isinstance(settings.get(name), str) for name in ("cls_token", "sep_token", "pad_token", "mask_token"))
    return named and str(settings.get("tokenizer_class", "")).startswith("BertTokenizer")
