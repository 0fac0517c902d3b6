"""The matcher: two encoders and an interaction. Everything above is written against this class alone.

Three steps, three words. **encode**: a picture or sentence to local vectors, the encoders' work, the same for all
papers. **keep**: what this paper needs of them, once a side. **score**: two kept things meet.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from diptych.common.config import to_tree
from diptych.common.errors import DiptychError
from diptych.common.files import write_json, write_text, written_aside
from diptych.data.batches import ImageBatch, LocalFeatures, Pixels, Tokens, pad_regions
from diptych.data.collection import Regions
from diptych.data.open_picture import Picture, open_with_size
from diptych.data.tokens import Tokenizer, encode
from diptych.encoders.backbones import Extractor, Preprocess
from diptych.encoders.encoded import Encoded, l2
from diptych.encoders.extract import load_extractor
from diptych.encoders.gpo import GPO
from diptych.encoders.images import FeatureConfig, FeatureEncoder, ImageEncoder, build_image_encoder
from diptych.encoders.pooling import mean_pool
from diptych.encoders.sources import MATCHER_FORMAT
from diptych.encoders.texts import TextEncoder, build_text_encoder
from diptych.matchers.kept import Kept
from diptych.matchers.layout import Layout as Layout
from diptych.matchers.view import View as View

Sides = tuple[Encoded, Encoded]  # pictures, sentences
Pictures = ImageBatch | Sequence[Picture] | Sequence[Regions] | Sequence[np.ndarray]


class Matcher(nn.Module, ABC):
    """Scores every pair of pictures and sentences.

    A paper defines what is kept of each side's local vectors and how two kept things score. A score depends on its own
    picture and sentence alone, never on the batch or the padding.

    title: the model's name for people
    looks: names of views, the best first, of which the first that is there shows where each word looks
    follows_locals: what is kept of a picture follows from its local vectors, so that some of them can be left out
    """

    title: ClassVar[str] = "matcher"
    looks: ClassVar[tuple[str, ...]] = ("word_to_region", "region_to_word", "together")
    follows_locals: ClassVar[bool] = True

    image_encoder: ImageEncoder
    text_encoder: TextEncoder

    def __init__(self, config: Any, tokenizer: Tokenizer, assets: Path | None = None) -> None:
        """With pretrained backbones; with `assets`, a saved matcher's folder, the architecture alone."""
        super().__init__()
        self.config = config
        self.tokenizer = tokenizer
        self.image_encoder = build_image_encoder(config.image, config.dim, assets)
        words = tokenizer.pieces(range(tokenizer.size))
        self.text_encoder = build_text_encoder(config.text, config.dim, words, assets)
        self._extractor: Extractor | None = None

    # What a paper defines.

    @abstractmethod
    def keep_images(self, encoded: Encoded) -> Kept:
        """What is kept of encoded pictures, with gradient."""

    @abstractmethod
    def keep_texts(self, encoded: Encoded) -> Kept:
        """What is kept of encoded sentences, with gradient."""

    @abstractmethod
    def score(self, images: Kept, texts: Kept) -> Tensor:
        """Scores of all pairs: (n images, m sentences)."""

    # What a paper may define besides.

    def logits(self, images: Kept, texts: Kept) -> Tensor:
        """What a binary loss sees of all pairs: (n, m). A matcher whose score is a sigmoid returns its argument."""
        return self.score(images, texts)

    def score_pairs(self, images: Kept, texts: Kept) -> Tensor:
        """Scores of aligned pairs: (n,) for n pictures and n sentences."""
        return torch.stack([self.score(images[[i]], texts[[i]])[0, 0] for i in range(len(images))])

    def pair_floats(self, regions: int, words: int) -> int:
        """Numbers of working memory that one pair takes in `score`; sizes the blocks."""
        return 1

    def layout(self) -> Layout | None:
        """What a search store must hold of each item, where scores compare vectors; None where each pair is scored.

        `keep_images` and `keep_texts` then give unit vectors (n, K, d), and `score` is what the layout compares.
        """
        return None

    def pair_figures(self, images: Kept, texts: Kept, owners: Tensor) -> dict[str, float]:
        """Figures of its own, by name, that an evaluation shows; `owners` (sentences,) gives each one's picture."""
        return {}

    def see(self, images: Kept, texts: Kept, encoded: Sides | None = None) -> dict[str, View]:
        """What can be seen of all pairs, by name: attention, gates, fits, shares.

        encoded: the encoded pictures and sentences that were kept, where they are at hand; some things are seen of
        local vectors alone
        """
        return {}

    def pools(self) -> dict[str, GPO]:
        """The learned pooling operators, by side: `pictures`, `sentences`."""
        return {}

    def points(self, kept: Kept) -> tuple[Tensor, str]:
        """Unit vectors (n, points, d) that stand for items on a map, and what one of them is, for people."""
        if kept.vectors.shape[1] == 1:
            return l2(kept.vectors.float()), "the vector of a picture or sentence"
        mean = mean_pool(kept.vectors.float(), kept.mask).unsqueeze(1)
        return l2(mean), "the mean of a picture's regions or of a sentence's words, before they meet"

    # What follows from it.

    def forward(self, images: ImageBatch, texts: Tokens) -> tuple[Kept, Kept]:
        """What is kept of both sides of a batch, with gradient."""
        return self.keep_images(self.image_encoder(images)), self.keep_texts(self.text_encoder(texts))

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.parameters()).device

    @contextmanager
    def inference(self) -> Iterator[None]:
        """Eval mode without gradients; the former mode comes back."""
        modes = [(module, module.training) for module in self.modules()]
        self.eval()
        try:
            with torch.inference_mode():
                yield
        finally:
            for module, mode in modes:
                module.training = mode

    def encode_images(self, pictures: Pictures, batch_size: int = 64) -> Kept:
        """What is kept of pictures: image files, PIL images, arrays of local features, or a ready batch."""
        parts = []
        with self.inference():
            for start in range(0, len(pictures), batch_size):
                batch = self._image_batch(pictures, slice(start, start + batch_size))
                parts.append(self.keep_images(self.image_encoder(batch.to(self.device))))
        if not parts:
            raise DiptychError("encode_images: expected at least one picture")
        return type(parts[0]).cat(parts)

    def encode_texts(self, sentences: Sequence[str] | Tokens, batch_size: int = 256) -> Kept:
        """What is kept of sentences."""
        if isinstance(sentences, str):
            raise DiptychError("encode_texts: expected a list of sentences, got one string")
        parts = []
        with self.inference():
            for start in range(0, len(sentences), batch_size):
                part = slice(start, start + batch_size)
                if isinstance(sentences, Tokens):
                    batch = Tokens(sentences.ids[part], sentences.mask[part])
                else:
                    batch = encode(self.tokenizer, sentences[part])
                parts.append(self.keep_texts(self.text_encoder(batch.to(self.device))))
        if not parts:
            raise DiptychError("encode_texts: expected at least one sentence")
        return type(parts[0]).cat(parts)

    def similarity(self, pictures: Pictures, sentences: Sequence[str]) -> Tensor:
        """Scores of all pairs of pictures and sentences, from scratch: (n, m)."""
        images, texts = self.encode_images(pictures), self.encode_texts(sentences)
        with self.inference():
            return self.score(images, texts)

    def rank(self, sentence: str, pictures: Pictures, top: int = 10) -> list[tuple[int, float]]:
        """Positions and scores of the pictures that fit a sentence best."""
        scores = self.similarity(pictures, [sentence])[:, 0]
        best = scores.topk(min(top, len(scores)))
        return [(int(i), float(s)) for i, s in zip(best.indices, best.values, strict=True)]

    @property
    def takes_features(self) -> bool:
        """Whether its pictures are local features; else they are pixels."""
        return self.feature_source is not None

    @property
    def feature_source(self) -> FeatureConfig | None:
        """What its local features are, and what computes them where that is known; None where it takes pixels."""
        return self.image_encoder.config if isinstance(self.image_encoder, FeatureEncoder) else None

    @property
    def preprocess(self) -> Preprocess | None:
        """How a picture becomes the pixels that it takes; None where it takes features."""
        return None if isinstance(self.image_encoder, FeatureEncoder) else self.image_encoder.backbone.preprocess

    @property
    def takes_pictures(self) -> bool:
        """Whether it can be shown a picture: it takes pixels, or what computes its features is known."""
        return self.feature_source is None or self.feature_source.backbone is not None

    def extractor(self) -> Extractor:
        """What turns a picture into local features: the matcher's own backbone, or what its features came from."""
        if not isinstance(self.image_encoder, FeatureEncoder):
            return self.image_encoder.backbone
        source = self.image_encoder.config
        if source.backbone is None:
            raise DiptychError("this matcher needs local features: its config names no backbone that computes them")
        if self._extractor is None:
            # Kept out of the module tree: its weights are not the matcher's.
            extractor = load_extractor(source.backbone, source.size, source.regions)
            object.__setattr__(self, "_extractor", extractor)
        assert self._extractor is not None
        return self._extractor.to(self.device)

    def _image_batch(self, pictures: Pictures, part: slice) -> ImageBatch:
        if isinstance(pictures, Pixels):
            return Pixels(pictures.values[part])
        if isinstance(pictures, LocalFeatures):
            return LocalFeatures(pictures.vectors[part], pictures.mask[part])
        chosen = pictures[part]
        if isinstance(chosen[0], Regions | np.ndarray):
            return pad_regions(chosen)  # type: ignore[arg-type]
        extractor = self.extractor()

        def prepare(picture: Picture) -> tuple[np.ndarray, tuple[int, int]]:
            image, size = open_with_size(picture)
            return extractor.prepare(image), size

        # Decoding and resizing let go of the interpreter's lock, so threads share the work.
        with ThreadPoolExecutor(min(len(chosen), os.cpu_count() or 1)) as threads:
            pixels, sizes = zip(*threads.map(prepare, chosen), strict=True)
        if self.takes_features:
            return pad_regions(extractor.extract(pixels, sizes, torch.float32))
        return Pixels(torch.from_numpy(np.stack(pixels)))

    # Folders that last.

    @property
    def external(self) -> tuple[str, ...]:
        """Prefixes of weights that are not saved: frozen parts that an installed package carries."""
        return (
            *(f"image_encoder.{part}" for part in self.image_encoder.external),
            *(f"text_encoder.{part}" for part in self.text_encoder.external),
        )

    def save_pretrained(self, folder: str | Path, card: str | None = None, dtype: torch.dtype | None = None) -> None:
        """Write config.json, model.safetensors (with floats of type `dtype`), the tokenizer and a model card."""
        from safetensors.torch import save_file

        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        self.tokenizer.save(folder)
        self.image_encoder.save_assets(folder)
        self.text_encoder.save_assets(folder)
        write_json(folder / "config.json", {"format": MATCHER_FORMAT, "matcher": to_tree(self.config)})
        if card is not None:
            write_text(folder / "README.md", card)
        tensors = {
            name: tensor.detach().to("cpu", dtype if tensor.is_floating_point() else None).contiguous()
            for name, tensor in self.state_dict().items()
            if not name.startswith(self.external)
        }
        with written_aside(folder / "model.safetensors") as aside:
            save_file(tensors, aside, {"format": "pt"})

    @staticmethod
    def from_pretrained(source: str | Path) -> "Matcher":
        """A matcher from a folder that `save_pretrained` wrote, or from the hub; weights must fit exactly."""
        from diptych.matchers.catalog import load_matcher

        return load_matcher(source)

    def push_to_hub(self, repository: str, private: bool = False, card: str | None = None) -> str:
        """Upload the folder to the Hugging Face hub; returns the commit's address."""
        from tempfile import TemporaryDirectory

        from huggingface_hub import HfApi

        api = HfApi()
        api.create_repo(repository, private=private, exist_ok=True)
        with TemporaryDirectory() as folder:
            self.save_pretrained(folder, card)
            return str(api.upload_folder(repo_id=repository, folder_path=folder))
