"""Why a picture and a sentence match: one function for every matcher."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from diptych.common.errors import DiptychError
from diptych.data.collection import Regions
from diptych.data.given import GivenPicture, as_picture
from diptych.explain.explanation import Explanation, ShownArray
from diptych.explain.leave_one_out import leave_one_out
from diptych.explain.seen import see
from diptych.explain.words import Word, mean_words, sentence_words, sum_words
from diptych.matchers.base import Matcher, View

NEAREST = 3


def explain(
    matcher: Matcher,
    image: GivenPicture,
    sentence: str,
    *,
    left_out: bool = True,
    sentences: Sequence[str] = (),
) -> Explanation:
    """Everything that can be seen of one pair.

    image: a picture in any form that `encode_images` takes, or its local features (with boxes, if it is to be drawn)
    left_out: also leave out each word and region, which takes (regions + 1) (words + 1) scores
    sentences: among which the nearest of each slot are looked for, where the matcher keeps sets

    >>> told = explain(matcher, "dog.png", "a red dog")
    >>> told.words, sorted(told.arrays())
    (('a', 'red', 'dog'), ['region_drop', 'region_share', 'together', 'word_drop', 'word_share'])
    """
    ids = matcher.tokenizer.ids(sentence)
    words = sentence_words(matcher.tokenizer, sentence)
    if not words:
        raise DiptychError(f"explain: the sentence {sentence!r} has no words")
    dim = None if matcher.feature_source is None else matcher.feature_source.feature_dim
    given = as_picture(image, "the picture", dim)
    seen = see(matcher, given)
    nearest: tuple[tuple[tuple[str, float], ...], ...] = ()
    with matcher.inference():
        picture = matcher.image_encoder(seen.batch)
        text = matcher.text_encoder(matcher.tokenizer.pad([ids]).to(matcher.device))
        images, texts = matcher.keep_images(picture), matcher.keep_texts(text)
        score = float(matcher.score(images, texts)[0, 0])
        shown = _of_words(matcher.see(images, texts, (picture, text)), words)
        if left_out:
            shown |= leave_one_out(matcher, seen, picture, ids, words).shown()
        if sentences:
            nearest = nearest_sentences(
                matcher.points(images)[0], matcher.points(matcher.encode_texts(sentences))[0], sentences
            )
    return Explanation(
        kind=matcher.config.kind,
        title=matcher.title,
        sentence=sentence,
        words=tuple(word.text for word in words),
        score=score,
        regions=picture.vectors.shape[1],
        boxes=seen.boxes,
        size=seen.size,
        grid=seen.grid,
        shown=shown,
        prefers=matcher.looks,
        nearest=nearest,
        picture=None if isinstance(given, Regions) else given,
    )


def _of_words(views: Mapping[str, View], words: Sequence[Word]) -> dict[str, ShownArray]:
    """What is seen of the only pair, its tokens put together to words."""
    shown = {}
    for name, view in views.items():
        values = view.values[0, 0].float().cpu().numpy()
        for axis, over in enumerate(view.axes):
            if over == "words":
                values = (sum_words if view.pieces == "sum" else mean_words)(values, words, axis)
        shown[name] = ShownArray(values, view.axes)
    return shown


def nearest_sentences(
    picture: Tensor, texts: Tensor, sentences: Sequence[str], count: int = NEAREST
) -> tuple[tuple[tuple[str, float], ...], ...]:
    """For each slot of one picture (1, K, d), the sentences of whose sets (m, K, d) some element is nearest to it.

    Of matchers that keep no sets there is nothing to tell.
    """
    if picture.shape[1] == 1:
        return ()
    cosines = torch.einsum("kd,mld->kml", picture[0], texts).amax(-1)
    best = cosines.topk(min(count, len(sentences)))
    return tuple(
        tuple((sentences[row], value) for row, value in zip(rows, values, strict=True))
        for rows, values in zip(best.indices.tolist(), best.values.tolist(), strict=True)
    )
