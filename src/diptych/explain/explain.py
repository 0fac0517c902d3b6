"""Why a picture and a sentence match: one function for every matcher."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

from diptych.common.errors import DiptychError
from diptych.data.batches import ImageBatch, Tokens
from diptych.data.collection import Regions
from diptych.explain.explanation import Explanation
from diptych.explain.leave_one_out import leave_one_out
from diptych.explain.seen import see, with_encoded
from diptych.explain.words import Word, mean_words, sentence_words, sum_words
from diptych.matchers.base import Matcher, Picture
from diptych.matchers.camp import CAMP
from diptych.matchers.camp_parts import CAMPKept
from diptych.matchers.dive import DivE
from diptych.matchers.kept import Kept
from diptych.matchers.mmca import MMCA
from diptych.matchers.scan import SCAN
from diptych.matchers.vse import VSE

NEAREST = 3
Arrays = dict[str, np.ndarray | None]


def explain(
    matcher: Matcher,
    image: Picture | Regions,
    sentence: str,
    *,
    left_out: bool = True,
    sentences: Sequence[str] = (),
) -> Explanation:
    """Everything that can be seen of one pair.

    image: a picture, or its local features (with boxes, if it is to be drawn)
    left_out: also leave out each word and region, which takes (regions + 1) (words + 1) scores
    sentences: among which DivE looks for the nearest of each slot
    """
    ids = matcher.tokenizer.ids(sentence)
    words = sentence_words(matcher.tokenizer, sentence)
    if not words:
        raise DiptychError(f"explain: the sentence {sentence!r} has no words")
    seen = see(matcher, image)
    nearest: tuple[tuple[tuple[str, float], ...], ...] = ()
    with matcher.inference():
        encoded = matcher.image_encoder(seen.batch)
        twin = with_encoded(matcher, encoded)
        tokens = matcher.tokenizer.pad([ids]).to(matcher.device)
        images, texts = twin.keep_images(seen.batch), matcher.keep_texts(tokens)
        score = float(matcher.score(images, texts)[0, 0])
        arrays = _arrays(twin, seen.batch, tokens, images, texts, words)
        if left_out:
            drops = leave_one_out(matcher, seen.batch, encoded, ids, words)
            arrays |= {"word_drop": drops.word_drop, "region_drop": drops.region_drop, "together": drops.together}
        if sentences and isinstance(matcher, DivE):
            nearest = nearest_sentences(images, matcher.encode_texts(sentences), sentences)
    count = encoded.vectors.shape[1]
    places: dict[str, Any] = {"boxes": seen.boxes, "size": seen.size, "grid": seen.grid}
    shown = tuple(word.text for word in words)
    found: dict[str, Any] = {name: array for name, array in arrays.items() if array is not None}
    return Explanation(matcher.config.kind, sentence, shown, score, count, **places, **found, nearest=nearest)


def _arrays(
    matcher: Matcher, batch: ImageBatch, tokens: Tokens, images: Kept, texts: Kept, words: Sequence[Word]
) -> Arrays:
    if isinstance(matcher, CAMP):
        return _camp(matcher, images, texts, words)
    if isinstance(matcher, SCAN):
        return _scan(matcher, images, texts, words)
    if isinstance(matcher, MMCA):
        return _mmca(matcher, batch, images, texts, words)
    if isinstance(matcher, DivE):
        return _dive(matcher, batch, tokens, images, texts, words)
    if isinstance(matcher, VSE):
        return _vse(matcher, batch, tokens, words)
    return {}  # of a matcher that shows nothing of itself, what is left out still tells


def _camp(matcher: CAMP, images: Kept, texts: Kept, words: Sequence[Word]) -> Arrays:
    if not isinstance(images, CAMPKept):
        return {}  # the base model: nothing passes between the two
    seen = matcher.attention(images, texts)
    return {
        "word_to_region": mean_words(_pair(seen.word_to_region), words, 0),
        "region_to_word": sum_words(_pair(seen.region_to_word), words),
        "word_gates": None if seen.word_gates is None else mean_words(_pair(seen.word_gates), words),
        "region_gates": None if seen.region_gates is None else _pair(seen.region_gates),
        "word_weights": sum_words(_pair(seen.word_weights), words),
        "region_weights": _pair(seen.region_weights),
    }


def _scan(matcher: SCAN, images: Kept, texts: Kept, words: Sequence[Word]) -> Arrays:
    seen = matcher.attention(images, texts)
    if seen.word_to_region is not None:
        return {
            "word_to_region": mean_words(_pair(seen.word_to_region), words, 0),
            "word_fit": mean_words(_pair(seen.cosines), words),
        }
    assert seen.region_to_word is not None
    return {"region_to_word": sum_words(_pair(seen.region_to_word), words), "region_fit": _pair(seen.cosines)}


def _mmca(matcher: MMCA, batch: ImageBatch, images: Kept, texts: Kept, words: Sequence[Word]) -> Arrays:
    found: Arrays = {"region_to_region": _numbers(matcher.self_attention(batch)[0])}
    if matcher.cross_unit is not None:
        seen = matcher.attention(images, texts)
        found["word_to_region"] = mean_words(_pair(seen.word_to_region), words, 0)
        found["region_to_word"] = sum_words(_pair(seen.region_to_word), words)
    return found


def _dive(matcher: DivE, batch: ImageBatch, tokens: Tokens, images: Kept, texts: Kept, words: Sequence[Word]) -> Arrays:
    return {
        "slot_to_region": _numbers(matcher.slot_attention(batch)[:, 0]),
        "slot_to_word": sum_words(_numbers(matcher.slot_attention(tokens)[:, 0]), words),
        "slot_similarity": _numbers(images.vectors[0] @ texts.vectors[0].T),
    }


def _vse(matcher: VSE, batch: ImageBatch, tokens: Tokens, words: Sequence[Word]) -> Arrays:
    found: Arrays = {"region_share": _numbers(matcher.image_contributions(batch)[0])}
    if matcher.config.text_pool != "whole":  # one state from the start: no word's share of it can be told
        found["word_share"] = sum_words(_numbers(matcher.text_contributions(tokens)[0]), words)
    return found


def nearest_sentences(
    images: Kept, texts: Kept, sentences: Sequence[str], count: int = NEAREST
) -> tuple[tuple[tuple[str, float], ...], ...]:
    """For each slot of one picture (1, K, d), the sentences of whose sets (m, K, d) some element is nearest to it."""
    cosines = (images.vectors[0] @ texts.vectors.flatten(0, 1).T).view(-1, *texts.vectors.shape[:2]).amax(-1)
    best = cosines.topk(min(count, len(sentences)))
    return tuple(
        tuple((sentences[row], value) for row, value in zip(rows, values, strict=True))
        for rows, values in zip(best.indices.tolist(), best.values.tolist(), strict=True)
    )


def _pair(tensor: Tensor) -> np.ndarray:
    """The only pair of (1, 1, ...)."""
    return _numbers(tensor[0, 0])


def _numbers(tensor: Tensor) -> np.ndarray:
    return tensor.float().cpu().numpy()
