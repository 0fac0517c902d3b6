"""Pictures and sentences in whatever form, batch by batch, to what encoders take."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from diptych.common.errors import DiptychError
from diptych.common.progress import progress_bar
from diptych.data.batches import ImageBatch, LocalFeatures, Pixels, Tokens, pad_regions
from diptych.data.collection import Regions
from diptych.data.given import GivenPicture, each_picture, each_sentence, in_lists, one_picture
from diptych.data.open_picture import Picture, open_with_size
from diptych.data.pictures import DECODED, is_picture
from diptych.data.tokens import Tokenizer, encode
from diptych.encoders.backbones import Extractor
from diptych.matchers.kept import Kept

Pictures = ImageBatch | GivenPicture | Iterable[GivenPicture]
Sentences = Tokens | str | Iterable[str]


def picture_batches(
    pictures: Pictures, batch_size: int, feature_dim: int | None, extractor: Callable[[], Extractor]
) -> Iterator[Callable[[], ImageBatch]]:
    """What makes each batch when it is called; pictures are asked for one batch at a time.

    feature_dim: the length of the local features that are taken; None where pixels are
    extractor: what makes pixels, or features, of a picture
    """
    if isinstance(pictures, Pixels | LocalFeatures):
        for part in _slices(len(pictures), batch_size):
            yield partial(_part, pictures, part)
        return
    for chunk in in_lists(each_picture(pictures, feature_dim), batch_size):
        yield partial(_opened, chunk, feature_dim is not None, extractor)


def token_batches(sentences: Sentences, batch_size: int, tokenizer: Tokenizer) -> Iterator[Callable[[], Tokens]]:
    """What makes each batch when it is called."""
    if isinstance(sentences, Tokens):
        for part in _slices(len(sentences), batch_size):
            yield partial(Tokens, sentences.ids[part], sentences.mask[part])
        return
    for chunk in in_lists(each_sentence(sentences), batch_size):
        yield partial(encode, tokenizer, chunk)


def gathered(parts: Iterable[Kept], unit: str, progress: bool | str, total: int | None) -> Kept:
    """All parts as one, under a progress bar where one is wanted."""
    done: list[Kept] = []
    with progress_bar(unit) if progress else nullcontext() as bar:
        what = progress if isinstance(progress, str) else f"encoding {unit}"
        task = bar.add_task(what, total=total, note="") if bar else None
        for part in parts:
            done.append(part)
            if bar is not None and task is not None:
                bar.advance(task, len(part))
    if not done:
        raise DiptychError(f"expected at least one of the {unit} to encode, got none")
    return type(done[0]).cat(done)


def count_of(given: Pictures | Sentences, feature_dim: int | None = None) -> int | None:
    """How many there are, where that can be known before they are gone through."""
    if one_picture(given, feature_dim):
        return 1
    return len(given) if isinstance(given, Sized) else None


def kind_of(query: GivenPicture | Kept) -> Literal["sentence", "picture"]:
    """What one query is, where nobody says: text is a sentence, anything else a picture."""
    if isinstance(query, Kept):
        raise DiptychError("rank: the query is encoded already; say kind='sentence' or kind='picture'")
    if not isinstance(query, str):
        return "picture"
    if is_picture(query) and Path(query).is_file():
        raise DiptychError(f"rank: {query!r} is a file, and text is a sentence; give a picture as a Path, or say kind=")
    return "sentence"


def _slices(count: int, size: int) -> Iterator[slice]:
    return (slice(chunk[0], chunk[-1] + 1) for chunk in in_lists(range(count), size))


def _part(batch: ImageBatch, part: slice) -> ImageBatch:
    if isinstance(batch, Pixels):
        return Pixels(batch.values[part])
    return LocalFeatures(batch.vectors[part], batch.mask[part])


def _opened(chunk: Sequence[Picture | Regions], takes_features: bool, extractor: Callable[[], Extractor]) -> ImageBatch:
    """Pictures decoded and made ready; local features as they are, and both together where features are taken."""
    shown = [(place, one) for place, one in enumerate(chunk) if not isinstance(one, Regions)]
    local = {place: one for place, one in enumerate(chunk) if isinstance(one, Regions)}
    if not shown:
        return pad_regions(list(local.values()))
    if local and not takes_features:
        raise DiptychError("this matcher was built for pictures, and was given local features")
    through = extractor()

    def prepare(one: tuple[int, Picture]) -> tuple[np.ndarray, tuple[int, int]]:
        with DECODED.holding():  # until it is as small as the model takes it
            image, size = open_with_size(one[1])
            return through.prepare(image), size

    # Decoding and resizing let go of the interpreter's lock, so threads share the work.
    with ThreadPoolExecutor(min(len(shown), os.cpu_count() or 1)) as threads:
        pixels, sizes = zip(*threads.map(prepare, shown), strict=True)
    if not takes_features:
        return Pixels(torch.from_numpy(np.stack(pixels)))
    found = through.extract(pixels, sizes, torch.float32)
    local |= {place: regions for (place, _), regions in zip(shown, found, strict=True)}
    return pad_regions([local[place] for place in range(len(chunk))])
