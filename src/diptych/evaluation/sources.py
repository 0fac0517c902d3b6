"""Where scores come from: a matrix, two files of vectors, a matcher, or blocks. Ranks are counted on any of them."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from diptych.common.errors import DiptychError
from diptych.matchers.base import Matcher
from diptych.matchers.bounded.memory import MemoryBudget
from diptych.matchers.kept import Kept

HALF_ROUNDING = 5e-2
ROUNDING = 2e-5  # two ways of computing one float32 score differ by less, in parts of it
STRIP = 1024  # pictures scored at once; 1,024 x 25,000 scores are 102 MB


class ScoreBlock(Protocol):
    """Scores (pictures, sentences) of a run of pictures with some sentences, given by their positions."""

    @property
    def images(self) -> slice:
        """The run of pictures."""

    @property
    def texts(self) -> Tensor:
        """Positions of the sentences, in any order."""

    @property
    def scores(self) -> Tensor:
        """(pictures, sentences)."""


@dataclass(frozen=True)
class Strip:
    """A block of ours."""

    images: slice
    texts: Tensor
    scores: Tensor


class ScoreSource(Protocol):
    """All scores of n pictures with m sentences, a block at a time."""

    @property
    def shape(self) -> tuple[int, int]:
        """(pictures, sentences)."""

    @property
    def tolerance(self) -> float:
        """How far, in parts of itself, `pairs` may lie from the score that a block holds; 0: not at all."""

    def blocks(self) -> Iterator[ScoreBlock]:
        """Every pair once."""

    def pairs(self, images: np.ndarray, texts: np.ndarray) -> np.ndarray | None:
        """Scores of aligned pairs (pairs,), to within rounding; `None` where they cannot be had without a pass."""

    def near(self) -> Tensor | None:
        """The whole matrix on a GPU that computes it and has room for it, so that ranks are counted there."""

    def part(self, images: np.ndarray, texts: np.ndarray) -> "ScoreSource":
        """The scores of chosen pictures with chosen sentences, renumbered from 0."""


class RowSource(ScoreSource, Protocol):
    """A source that can be asked for some pictures at a time."""

    def rows(self, start: int, stop: int) -> Iterator[ScoreBlock]:
        """The pictures from `start` to before `stop`, with every sentence; runs are numbered from `start`."""

    def part(self, images: np.ndarray, texts: np.ndarray) -> "RowSource":
        """As before."""


class MatrixSource:
    """A score matrix (pictures, sentences) that is at hand, or memory-mapped."""

    tolerance = 0.0

    def __init__(self, scores: Any) -> None:
        if not isinstance(scores, Tensor | np.ndarray):
            scores = np.asarray(scores)
        if scores.ndim != 2 or 0 in scores.shape:
            raise DiptychError(f"scores: expected a matrix (pictures, sentences), got shape {tuple(scores.shape)}")
        self.scores = scores

    @property
    def shape(self) -> tuple[int, int]:
        """(pictures, sentences)."""
        return self.scores.shape[0], self.scores.shape[1]

    def blocks(self) -> Iterator[ScoreBlock]:
        """Strips of rows."""
        return strips(self)

    def rows(self, start: int, stop: int) -> Iterator[ScoreBlock]:
        """A strip of rows."""
        yield Strip(slice(start, stop), torch.arange(self.shape[1]), as_floats(self.scores[start:stop]))

    def pairs(self, images: np.ndarray, texts: np.ndarray) -> np.ndarray:
        """The matrix's own numbers."""
        return as_floats(self.scores[images, texts]).numpy()

    def near(self) -> Tensor | None:
        """The matrix itself, where it is on a GPU."""
        on_gpu = isinstance(self.scores, Tensor) and self.scores.device.type != "cpu"
        return self.scores.detach() if on_gpu else None

    def part(self, images: np.ndarray, texts: np.ndarray) -> "MatrixSource":
        """A smaller matrix."""
        return MatrixSource(self.scores[images][:, texts])


class EmbeddingSource:
    """Dot products of pictures' and sentences' vectors, (n, d) and (m, d), formed strip by strip."""

    tolerance = ROUNDING

    def __init__(self, images: Tensor, texts: Tensor) -> None:
        if images.ndim != 2 or texts.ndim != 2 or images.shape[1] != texts.shape[1] or 0 in images.shape + texts.shape:
            raise DiptychError(
                "embeddings: expected (pictures, d) and (sentences, d), "
                f"got {tuple(images.shape)} and {tuple(texts.shape)}"
            )
        self.images, self.texts = images, texts
        self._out: Tensor | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """(pictures, sentences)."""
        return len(self.images), len(self.texts)

    def blocks(self) -> Iterator[ScoreBlock]:
        """Strips of rows; each is overwritten by the next."""
        return strips(self)

    def rows(self, start: int, stop: int) -> Iterator[ScoreBlock]:
        """A strip of rows, overwritten by the next."""
        if self._out is None or len(self._out) < stop - start:
            self._out = self.texts.new_empty(stop - start, len(self.texts))
        scores = torch.mm(self.images[start:stop], self.texts.T, out=self._out[: stop - start])
        yield Strip(slice(start, stop), torch.arange(len(self.texts)), scores.cpu())

    def pairs(self, images: np.ndarray, texts: np.ndarray) -> np.ndarray:
        """Each pair's own dot product."""
        parts = []
        for start in range(0, len(images), 512):
            i, j = torch.from_numpy(images[start : start + 512]), torch.from_numpy(texts[start : start + 512])
            parts.append((self.images[i.to(self.images.device)] * self.texts[j.to(self.texts.device)]).sum(1).cpu())
        return torch.cat(parts).numpy()

    def near(self) -> Tensor | None:
        """One product, where the vectors are on a GPU."""
        device = self.images.device
        fits = device.type != "cpu" and MemoryBudget(device).holds_matrix(*self.shape)
        return self.images @ self.texts.T if fits else None

    def part(self, images: np.ndarray, texts: np.ndarray) -> "EmbeddingSource":
        """Fewer vectors."""
        return EmbeddingSource(
            self.images[torch.from_numpy(images).to(self.images.device)],
            self.texts[torch.from_numpy(texts).to(self.texts.device)],
        )


class MatcherSource:
    """A matcher's scores of what it kept of pictures and sentences; memory, dtype: as scoring takes them."""

    def __init__(
        self,
        matcher: Matcher,
        images: Kept,
        texts: Kept,
        memory: int | None = None,
        progress: str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        self.matcher, self.images, self.texts = matcher, images, texts
        self.memory, self.progress, self.dtype = memory, progress, dtype

    @property
    def tolerance(self) -> float:
        """Wider where factors of products are rounded: to half precision, or on a GPU perhaps to TF32."""
        if self.dtype in (torch.bfloat16, torch.float16):
            return HALF_ROUNDING
        rounds = self.matcher.device.type == "cuda" and torch.get_float32_matmul_precision() != "highest"
        return 4e-3 if rounds else ROUNDING

    @property
    def shape(self) -> tuple[int, int]:
        """(pictures, sentences)."""
        return len(self.images), len(self.texts)

    def blocks(self) -> Iterator[ScoreBlock]:
        """The scoring room's blocks."""
        from diptych.scoring.blocks import score_blocks

        return score_blocks(
            self.matcher, self.images, self.texts, memory=self.memory, dtype=self.dtype, progress=self.progress
        )

    def rows(self, start: int, stop: int) -> Iterator[ScoreBlock]:
        """The same for a run of pictures."""
        from diptych.scoring.blocks import score_blocks

        part = self.images[start:stop]
        for block in score_blocks(self.matcher, part, self.texts, memory=self.memory, dtype=self.dtype):
            run = slice(block.images.start + start, block.images.stop + start)
            yield Strip(run, block.texts, block.scores)

    def pairs(self, images: np.ndarray, texts: np.ndarray) -> np.ndarray:
        """Each picture with its own few sentences."""
        from diptych.scoring.candidates import score_candidates

        order = np.argsort(images, kind="stable")
        rows, starts, counts = np.unique(images[order], return_index=True, return_counts=True)
        place = np.arange(len(order)) - np.repeat(starts, counts)
        row = np.repeat(np.arange(len(rows)), counts)
        candidates = np.full((len(rows), counts.max()), -1, dtype=np.int64)
        candidates[row, place] = texts[order]
        scores = score_candidates(
            self.matcher,
            self.images[torch.from_numpy(rows).to(self.images.device)],
            self.texts,
            torch.from_numpy(candidates),
            query="images",
            memory=self.memory,
            dtype=self.dtype,
        )
        result = np.empty(len(images), dtype=np.float64)
        result[order] = scores.cpu().numpy()[row, place]
        return result

    def near(self) -> Tensor | None:
        """All blocks put together where they were computed."""
        from diptych.scoring.blocks import score_all_near

        if self.matcher.device.type == "cpu":
            return None
        return score_all_near(
            self.matcher, self.images, self.texts, memory=self.memory, dtype=self.dtype, progress=self.progress
        )

    def part(self, images: np.ndarray, texts: np.ndarray) -> "MatcherSource":
        """Fewer pictures and sentences."""
        rows = self.images[torch.from_numpy(images).to(self.images.device)]
        columns = self.texts[torch.from_numpy(texts).to(self.texts.device)]
        return MatcherSource(self.matcher, rows, columns, self.memory, self.progress, self.dtype)


class BlockSource:
    """Blocks from elsewhere that can be gone through twice."""

    tolerance = 0.0

    def __init__(self, blocks: Iterable[ScoreBlock], shape: tuple[int, int]) -> None:
        self._blocks, self._shape = blocks, shape

    @property
    def shape(self) -> tuple[int, int]:
        """(pictures, sentences)."""
        return self._shape

    def blocks(self) -> Iterator[ScoreBlock]:
        """From the first again."""
        return iter(self._blocks)

    def pairs(self, images: np.ndarray, texts: np.ndarray) -> None:
        """Not without going through all blocks."""

    def near(self) -> None:
        """Nowhere as a whole."""

    def part(self, images: np.ndarray, texts: np.ndarray) -> ScoreSource:
        """The parts of the blocks that lie inside."""
        return BlockSource(_Inside(self, images, texts), (len(images), len(texts)))


class _Inside:
    """Re-iterable: the cells of a source's blocks that lie in chosen rows and columns, renumbered."""

    def __init__(self, source: BlockSource, images: np.ndarray, texts: np.ndarray) -> None:
        self.source = source
        self.row, self.column = np.full(source.shape[0], -1), np.full(source.shape[1], -1)
        self.row[images], self.column[texts] = np.arange(len(images)), np.arange(len(texts))

    def __iter__(self) -> Iterator[ScoreBlock]:
        for block in self.source.blocks():
            rows, columns = self.row[block.images], self.column[block.texts.numpy()]
            keep = np.flatnonzero(columns >= 0)
            texts = torch.from_numpy(columns[keep])
            inside = np.flatnonzero(rows >= 0)
            # Rows that follow each other here and there stay together.
            cuts = np.flatnonzero((np.diff(inside) != 1) | (np.diff(rows[inside]) != 1)) + 1
            for run in np.split(inside, cuts) if len(inside) and len(keep) else []:
                start = int(rows[run[0]])
                scores = block.scores.cpu()[int(run[0]) : int(run[-1]) + 1]
                if len(keep) < len(columns):
                    scores = scores[:, torch.from_numpy(keep)]
                yield Strip(slice(start, start + len(run)), texts, scores)


def strips(source: RowSource) -> Iterator[ScoreBlock]:
    """All rows of a source, a strip at a time."""
    for start in range(0, source.shape[0], STRIP):
        yield from source.rows(start, min(start + STRIP, source.shape[0]))


def block_source(blocks: Iterable[ScoreBlock], shape: tuple[int, int]) -> ScoreSource:
    """A source of blocks; an iterator, which cannot be gone through twice, is put together in a float32 matrix."""
    if not isinstance(blocks, Iterator):
        return BlockSource(blocks, shape)
    matrix = torch.full(shape, torch.nan)
    for block in blocks:
        matrix[block.images, block.texts] = block.scores.float().cpu()
    return MatrixSource(matrix)


def as_floats(values: Any) -> Tensor:
    """Numbers as a CPU tensor of float32 or float64, the narrowest that holds them."""
    if isinstance(values, np.ndarray):
        values = np.ascontiguousarray(values)
        values = torch.from_numpy(values if values.flags.writeable else values.copy())
    tensor: Tensor = values.detach().cpu()
    if tensor.dtype in (torch.float32, torch.float64):
        return tensor
    return tensor.float() if tensor.is_floating_point() else tensor.double()


def read_vectors(source: Any, what: str) -> Tensor:
    """Vectors (n, d) from a tensor, an array, a `Kept` with one vector an item, or an .npy file, as float32."""
    if isinstance(source, Kept):
        if source.vectors.shape[1] != 1:
            raise DiptychError(f"expected one vector an item, got {source.vectors.shape[1]}", where=what)
        source = source.vectors[:, 0]
    if isinstance(source, str | Path):
        try:
            source = np.load(source, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise DiptychError(f"{what}: expected an .npy file of vectors: {error}", where=source) from None
    if isinstance(source, Tensor):
        tensor = source.detach()
    else:
        array = np.asarray(source)
        if not np.issubdtype(array.dtype, np.number) or np.iscomplexobj(array):
            raise DiptychError(f"expected numbers, got {array.dtype}", where=what)
        ready = array.dtype == np.float32 and array.flags.writeable
        tensor = torch.from_numpy(array if ready else array.astype(np.float32))
    if tensor.ndim != 2:
        raise DiptychError(f"expected vectors (n, d), got shape {tuple(tensor.shape)}", where=what)
    return tensor.float()
