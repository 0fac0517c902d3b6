"""A model as search uses it: pictures and sentences to unit vectors that one store can compare."""

import base64
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from diptych.common.device import pick_device
from diptych.common.errors import DiptychError
from diptych.common.model_place import canonical_name, find_model
from diptych.data.batches import LocalFeatures, Pixels, pad_regions
from diptych.data.open_picture import Picture, open_picture
from diptych.data.pictures import DECODED
from diptych.data.tokens import encode
from diptych.encoders.backbones import Extractor, Size
from diptych.encoders.encoded import Encoded
from diptych.encoders.extract import load_extractor
from diptych.encoders.images import FeatureConfig
from diptych.encoders.quick.encoders import QuickImages, QuickTexts
from diptych.encoders.sources import matcher_folder
from diptych.matchers.base import Matcher
from diptych.search.models.quick import (
    PROBE_TEXT,
    SENTENCES,
    agreeing_images,
    agreeing_texts,
    drawn_pictures,
    probe_picture,
)

# Two models that give this picture or sentence vectors further apart than this are not the same model.
SAME_MODEL = 0.98
# So few sentences are embedded on one core: their products are so small that cores which wait for each other take
# longer, many times so where other programs have some of them.
FEW = 4
# After so many sentences, each asked for on its own, more are expected, and the quick form is made.
ASKED = 8


@dataclass(frozen=True)
class LocalsSource:
    """What local features are computed with; two models with the same source can share them."""

    backbone: str
    size: int
    regions: int | None = None

    @classmethod
    def of(cls, config: FeatureConfig | None) -> "LocalsSource | None":
        """The source of a matcher's features; None where it takes pixels, or its configuration names no backbone."""
        if config is None or config.backbone is None:
            return None
        return cls(canonical_name(config.backbone), config.size, config.regions)

    def same(self, other: "LocalsSource | None") -> bool:
        """Whether both are the same model at the same size, links followed."""
        if other is None or (self.size, self.regions) != (other.size, other.regions):
            return False
        return os.path.realpath(self.backbone) == os.path.realpath(other.backbone)

    def load(self) -> Extractor:
        """The model that computes them."""
        return load_extractor(self.backbone, self.size, self.regions)


@dataclass(frozen=True)
class Embedded:
    """Vectors (n, K, d) of n pictures, and their local features (cells, f) where they came along."""

    vectors: np.ndarray
    locals: list[np.ndarray] | None


class Embedder:
    """A matcher that compares vectors: pictures and sentences to unit vectors (n, K, d). Threads may share one.

    name: what loads it again: `default`, an absolute folder, or a name of the hub
    side: pictures of at least twice this side are as good as whole ones
    locals_source: what the local features that come along are, or None where no other model could compute them
    quick: whether quick forms of the encoders may take their place; without them vectors are the encoders' own
    """

    locals_source: LocalsSource | None = None
    _probes: Mapping[bool, str] = MappingProxyType({})

    def __init__(self, matcher: Matcher, name: str, quick: bool = True) -> None:
        layout = matcher.layout()
        if layout is None:
            raise DiptychError(
                f"this {matcher.title} scores each pair for itself and cannot search by vectors; it can "
                "re-rank (--rerank). Searching needs a model that compares vectors",
                where=name,
            )
        self.name = name
        self.matcher = matcher.eval()
        self.device = matcher.device
        self.quick = quick and self.device.type == "cpu"
        self.layout = layout
        self._tokenizing = threading.Lock()
        self._hastening = threading.Lock()
        self._hastened: set[str] = set()
        self._asked = 0
        self._quick_images: QuickImages | None = None
        self._quick_texts: QuickTexts | None = None
        self._extractor = matcher.extractor()
        self.side = self._extractor.size
        if matcher.takes_features or matcher_folder(name) is None:
            self.locals_source = LocalsSource.of(matcher.feature_source)
        else:
            self.locals_source = LocalsSource(name, self.side)
        if self.device.type == "cpu":
            self._extractor.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def prepare(self, image: Image.Image) -> np.ndarray:
        """An RGB picture to uint8 pixels (height, width, 3) for the model."""
        return self._extractor.prepare(image)

    def embed_pixels(self, pixels: Sequence[np.ndarray], sizes: Sequence[Size], locals: bool = False) -> Embedded:
        """Prepared pictures, whose whole sizes (width, height) are given, to vectors (n, K, d).

        locals: with the cells or regions (cells, f) that they were made of
        """
        with torch.inference_mode():
            if self._quick_images is not None and not locals:
                return Embedded(self._image_vectors(self._quick_images(pixels)), None)
            wrong: list[int] = []
            if self.matcher.takes_features:
                regions = [regions.vectors for regions in self._extractor.extract(pixels, sizes, torch.float32)]
                # One picture costs itself: it gets no finite vector, and the others theirs.
                wrong = [i for i, local in enumerate(regions) if not np.isfinite(local).all()]
                for i in wrong:
                    regions[i] = np.zeros_like(regions[i])
                batch: Pixels | LocalFeatures = pad_regions(regions)
            else:
                batch = Pixels(torch.from_numpy(np.stack(pixels)))
            encoded: Encoded = self.matcher.image_encoder(batch.to(self.device))
            vectors = self._image_vectors(encoded)
            vectors[wrong] = np.nan
            if not locals:
                return Embedded(vectors, None)
            halves = encoded.inputs.to(torch.float16).cpu().numpy()
            return Embedded(vectors, [x[real] for x, real in zip(halves, encoded.mask.cpu().numpy(), strict=True)])

    def embed_texts(self, texts: Sequence[str]) -> np.ndarray:
        """Sentences to vectors (n, K, d)."""
        if not texts:
            return np.zeros((0, self.layout.set_size, self.layout.dim), np.float32)
        with self._tokenizing:  # Hugging Face tokenizers cannot be shared while they work
            tokens = encode(self.matcher.tokenizer, texts)
        few = self.device.type == "cpu" and len(texts) <= FEW
        with torch.inference_mode(), _one_core(few):
            if few and self._quick_texts is not None and tokens.ids.shape[1] <= self._quick_texts.most:
                alone = [ids[real].unsqueeze(0) for ids, real in zip(tokens.ids, tokens.mask, strict=True)]
                return np.concatenate([self._text_vectors(self._quick_texts(ids)) for ids in alone])
            vectors = self._text_vectors(self.matcher.text_encoder(tokens.to(self.device)))
        if few and self.quick:
            self._expect_more()
        return vectors

    def hasten_pictures(self) -> None:
        """Make ready for many pictures: a second of work, after which each takes a fraction of its time.

        Where the model has no quick form, its runtime is missing, or the two do not agree, nothing changes.
        """
        with self._hastening:
            if "pictures" in self._hastened or not self.quick or self.matcher.takes_features:
                return
            self._hastened.add("pictures")
            self.probe(True)  # which is kept, before anything is quick
            drawn = [self.prepare(image) for image in drawn_pictures()]
            side = (self.side, self.side)
            expected = np.concatenate([self.embed_pixels([pixels], [side]).vectors for pixels in drawn])
            folder = matcher_folder(self.name)
            with torch.inference_mode():
                self._quick_images = agreeing_images(self.matcher, folder, drawn, expected, self._image_vectors)

    def hasten_texts(self) -> None:
        """The same for many sentences, asked for one at a time."""
        with self._hastening:
            if "texts" in self._hastened or not self.quick:
                return
            self._hastened.add("texts")
            self.probe(False)
            expected = np.concatenate([self.embed_texts([sentence]) for sentence in SENTENCES])
            with self._tokenizing:
                ids = [encode(self.matcher.tokenizer, [sentence]).ids for sentence in SENTENCES]
            with torch.inference_mode(), _one_core(True):
                self._quick_texts = agreeing_texts(self.matcher, ids, expected, self._text_vectors)

    def embed_pictures(self, pictures: Sequence[Picture], batch_size: int = 32) -> np.ndarray:
        """Pictures, wherever they are, to vectors (n, K, d)."""

        def prepare(picture: Picture) -> tuple[np.ndarray, tuple[int, int]]:
            with DECODED.holding():  # until it is as small as the model takes it
                image = open_picture(picture, self.side)
                return self.prepare(image), image.size

        parts = [np.zeros((0, self.layout.set_size, self.layout.dim), np.float32)]
        with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as threads:
            for start in range(0, len(pictures), batch_size):
                some = list(threads.map(prepare, pictures[start : start + batch_size]))
                parts.append(self.embed_pixels([pixels for pixels, _ in some], [size for _, size in some]).vectors)
        return np.concatenate(parts)

    def unlevelled(self, vectors: np.ndarray) -> np.ndarray:
        """Vectors (..., d) as queries whose scores are cosines, with nothing taken off for hubs."""
        return self.matcher.unlevelled(torch.tensor(vectors)).numpy()  # a copy: a store may hand out its own

    def probe(self, pictures: bool) -> str:
        """What this model makes of a fixed sentence (or picture), by which it is known again, as text.

        It is always the encoder's own vector, never that of its quick form.
        """
        if pictures in self._probes:
            return self._probes[pictures]
        vectors = self.embed_pictures([probe_picture()]) if pictures else self.embed_texts([PROBE_TEXT])
        probe = base64.b64encode(vectors[0].astype("<f2").tobytes()).decode()
        self._probes = {**self._probes, pictures: probe}
        return probe

    def _expect_more(self) -> None:
        """Count what is asked; nobody waits while the quick form is made."""
        self._asked += 1
        if self._asked >= ASKED and "texts" not in self._hastened:
            threading.Thread(target=self.hasten_texts, name="hasten-texts").start()

    def _image_vectors(self, encoded: Encoded) -> np.ndarray:
        return self._vectors(self.matcher.keep_images(encoded).vectors)

    def _text_vectors(self, encoded: Encoded) -> np.ndarray:
        return self._vectors(self.matcher.keep_texts(encoded).vectors)

    def _vectors(self, vectors: Tensor) -> np.ndarray:
        return unit(vectors[:, : self.layout.set_size].float().cpu().numpy())


def same_probe(one: str, other: str) -> bool:
    """Whether two probes are the same model's, on whatever device it ran."""
    x, y = (np.frombuffer(base64.b64decode(p), "<f2").astype(np.float32) for p in (one, other))
    return x.shape == y.shape and float(x @ y) >= SAME_MODEL * float(np.linalg.norm(x) * np.linalg.norm(y))


@contextmanager
def _one_core(wanted: bool) -> Iterator[None]:
    """Where wanted, this thread's products run on one core."""
    threads = torch.get_num_threads()
    if not wanted or threads == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def unit(vectors: np.ndarray) -> np.ndarray:
    """Vectors (..., d) of length 1 in float32."""
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return np.asarray(vectors / np.maximum(lengths, 1e-12), dtype=np.float32)


def load_embedder(name: str | Path, device: torch.device | str | None = None, quick: bool = True) -> Embedder:
    """A model for search by name: `default`, a run or a saved matcher's folder, or a CLIP or SigLIP model."""
    place, chosen = find_model(name), pick_device(device)
    return Embedder(Matcher.from_pretrained(place.name).to(chosen), place.name, quick)
