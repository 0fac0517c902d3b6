"""What the score loses when one word, one region, or one of each is left out: for any matcher."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from diptych.data.batches import Pixels, Tokens
from diptych.encoders.encoded import Encoded
from diptych.explain.explanation import ShownArray
from diptych.explain.seen import Seen, hide_cells
from diptych.explain.words import Word
from diptych.matchers.base import Matcher
from diptych.matchers.kept import Kept
from diptych.scoring.blocks import score_all

AT_ONCE = 64  # pictures, each with one region left out, that are kept in one go


@dataclass(frozen=True)
class LeftOut:
    """Drops of the score s; s - s(without) is above 0 where a word or region helps.

    word_drop: (words,); region_drop: (regions,), None with one region only, since nothing would be left
    together: (words, regions), s - s(without w) - s(without r) + s(without both)
    """

    word_drop: np.ndarray
    region_drop: np.ndarray | None
    together: np.ndarray | None

    def shown(self) -> dict[str, ShownArray]:
        """As parts of an explanation."""
        shown = {"word_drop": ShownArray(self.word_drop, ("words",))}
        if self.region_drop is not None and self.together is not None:
            shown["region_drop"] = ShownArray(self.region_drop, ("regions",))
            shown["together"] = ShownArray(self.together, ("words", "regions"))
        return shown


def leave_one_out(matcher: Matcher, seen: Seen, encoded: Encoded, ids: Sequence[int], words: Sequence[Word]) -> LeftOut:
    """Leave out each word of a sentence and each region of a picture, alone and in pairs.

    seen, encoded: one picture, and what the image encoder made of it: (1, regions, d)
    ids: the sentence's tokens. A word's tokens are taken out of the sentence, a region's vector out of the set: what is
    scored is a shorter sentence and a smaller set, without holes or padding. Where what is kept of a picture does not
    follow from its local vectors, a region is painted over instead, and the picture encoded again.
    """
    scores = _scores(matcher, seen, encoded, ids, words).double().numpy()
    whole = scores[0, 0]
    word_drop = (whole - scores[0, 1:]).astype(np.float32)
    if len(scores) == 1:
        return LeftOut(word_drop, None, None)
    together = whole - scores[:1, 1:] - scores[1:, :1] + scores[1:, 1:]
    return LeftOut(word_drop, (whole - scores[1:, 0]).astype(np.float32), together.T.astype(np.float32))


def _scores(matcher: Matcher, seen: Seen, encoded: Encoded, ids: Sequence[int], words: Sequence[Word]) -> Tensor:
    """(1 + regions, 1 + words), the whole picture and sentence first; (1, 1 + words) where there is one region."""
    pictures = [matcher.keep_images(encoded), *_without_each_region(matcher, seen, encoded)]
    columns = []
    for group, texts in _without_each_word(matcher, ids, words):
        columns.append((group, torch.cat([score_all(matcher, images, texts) for images in pictures])))
    scores = torch.empty(len(columns[0][1]), 1 + len(words))
    for group, part in columns:
        scores[:, group] = part
    return scores


def _without_each_region(matcher: Matcher, seen: Seen, encoded: Encoded) -> list[Kept]:
    count = encoded.vectors.shape[1]
    if count == 1:
        return []
    places = torch.arange(count, device=encoded.vectors.device)
    return [matcher.keep_images(_without(matcher, seen, encoded, part)) for part in places.split(AT_ONCE)]


def _without(matcher: Matcher, seen: Seen, encoded: Encoded, part: Tensor) -> Encoded:
    """The picture once for each place of `part`, without the region that is there."""
    if not matcher.follows_locals and isinstance(seen.batch, Pixels) and seen.grid is not None:
        hidden: Encoded = matcher.image_encoder(hide_cells(seen.batch, seen.grid, part))
        return hidden
    places = torch.arange(encoded.vectors.shape[1], device=part.device)
    rest = torch.stack([places[places != place] for place in part])
    return Encoded(encoded.vectors[0][rest], encoded.mask[0][rest], None, encoded.inputs[0][rest])


def _without_each_word(matcher: Matcher, ids: Sequence[int], words: Sequence[Word]) -> list[tuple[list[int], Kept]]:
    """The whole sentence (0) and the sentence without word i (1 + i), in groups of equal length, without padding."""
    shorter = [[t for place, t in enumerate(ids) if place not in word.tokens] for word in words]
    # A tokenizer without special tokens leaves nothing of one word.
    sentences = [list(ids), *(tokens or [matcher.tokenizer.mask_id] for tokens in shorter)]
    groups: dict[int, list[int]] = {}
    for number, tokens in enumerate(sentences):
        groups.setdefault(len(tokens), []).append(number)
    kept = []
    for length, group in groups.items():
        rows = torch.tensor([sentences[number] for number in group])
        texts = Tokens(rows, torch.ones(len(group), length, dtype=torch.bool))
        kept.append((group, matcher.keep_texts(matcher.text_encoder(texts.to(matcher.device)))))
    return kept
