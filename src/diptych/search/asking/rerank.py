"""The second stage: a model that looks at each pair rescores the best of the first, and the two are fused."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock
from typing import get_args

import numpy as np
import torch
from PIL import Image

from diptych.common.device import pick_device
from diptych.common.errors import DiptychError, nearest
from diptych.common.model_place import canonical_name
from diptych.data.open_picture import open_picture
from diptych.matchers.base import Matcher
from diptych.matchers.kept import Kept
from diptych.scoring.candidates import score_candidates
from diptych.scoring.fusion import Fusion
from diptych.search.asking.query import SearchQuery, Term
from diptych.search.models.embedder import LocalsSource
from diptych.search.stores.keys import open_key
from diptych.search.stores.store import Entry, Kind, Stamp

REMEMBERED = 256 << 20  # bytes of what is kept of pictures, for later queries


@dataclass(frozen=True)
class Rerank:
    """Which model rescores how many of the first stage's results, and how the two scores become one (`fuse`)."""

    model: str
    depth: int = 100
    fusion: Fusion = "sum"

    def __post_init__(self) -> None:
        if self.depth < 1:
            raise DiptychError(f"depth: expected at least 1, got {self.depth}")
        if self.fusion not in get_args(Fusion):
            raise DiptychError(f"fusion: {self.fusion!r} is not known; {nearest(self.fusion, list(get_args(Fusion)))}")


class RememberedPictures:
    """What a matcher kept of the pictures that were asked for last, up to so many bytes; threads may share it."""

    def __init__(self, limit: int) -> None:
        self.limit, self.held = limit, 0
        self._kept: OrderedDict[tuple[str, Stamp], Kept] = OrderedDict()
        self._lock = Lock()

    def find(self, entries: Sequence[Entry]) -> dict[str, Kept]:
        """What is remembered of some entries as they are now, by key."""
        found = {}
        with self._lock:
            for entry in entries:
                one = self._kept.get((entry.key, entry.stamp))
                if one is not None:
                    self._kept.move_to_end((entry.key, entry.stamp))
                    found[entry.key] = one
        return found

    def add(self, entry: Entry, one: Kept) -> None:
        """Remember what was kept of an entry; the ones that were not asked for longest are forgotten."""
        own = type(one)(**{name: tensor.clone() for name, tensor in one.tensors().items()})
        with self._lock:
            before = self._kept.pop((entry.key, entry.stamp), None)  # by another thread, and padded otherwise
            self.held += _bytes(own) - (0 if before is None else _bytes(before))
            self._kept[entry.key, entry.stamp] = own
            while self.held > self.limit:
                self.held -= _bytes(self._kept.popitem(last=False)[1])


class Reranker:
    """A matcher that rescores candidates from what is kept of them, or from their pictures."""

    def __init__(self, name: str, device: torch.device | str | None = None) -> None:
        self.name = canonical_name(name)
        self.matcher = Matcher.from_pretrained(self.name).to(pick_device(device))
        self.source = LocalsSource.of(self.matcher.feature_source)
        self._remembered = RememberedPictures(REMEMBERED)

    def scores(
        self,
        queries: Sequence[SearchQuery],
        candidates: Sequence[Sequence[Entry]],
        kind: Kind,
        kept: LocalsSource | None,
    ) -> list[np.ndarray]:
        """Scores (c,) of each query's candidates of one kind, -inf where a picture cannot be read any more.

        What was kept of it, in the index or for an earlier query, serves also when its file is gone.

        kept: what the candidates' local features were computed with, where the index keeps them
        A query's score is the weighted mean over its terms of the other kind; it needs at least one.
        """
        other: Kind = "sentence" if kind == "picture" else "picture"
        wanted = [[term for term in query.terms if term.kind == other] for query in queries]
        if any(not terms for terms in wanted):
            raise DiptychError(
                f"re-ranking {kind}s needs a {other} in the query: its model compares one with the other"
            )
        entries = list({entry.key: entry for some in candidates for entry in some}.values())
        terms = [(q, term) for q, own in enumerate(wanted) for term in own]
        if kind == "picture":
            items, rows = self._keep_pictures(entries, kept)
        else:
            rows = {entry.key: row for row, entry in enumerate(entries)}
            items = self.matcher.encode_texts([entry.text for entry in entries]) if entries else None
        if items is None:
            return [np.full(len(some), -np.inf, np.float32) for some in candidates]
        # A row of candidates for each term of each query.
        positions = torch.full((len(terms), max(map(len, candidates))), -1, dtype=torch.int64)
        for row, (q, _) in enumerate(terms):
            places = [rows.get(entry.key, -1) for entry in candidates[q]]
            positions[row, : len(places)] = torch.tensor(places, dtype=torch.int64)
        asked = self._keep_terms([term for _, term in terms])
        scored = score_candidates(
            self.matcher, asked, items, positions, "texts" if kind == "picture" else "images"
        ).numpy()
        owners = np.array([q for q, _ in terms])
        weights = np.array([term.weight for _, term in terms], np.float32)
        return [_weighted(scored[owners == q, : len(some)], weights[owners == q]) for q, some in enumerate(candidates)]

    def _keep_terms(self, terms: Sequence[Term]) -> Kept:
        """What the matcher keeps of a query's terms, which are all sentences or all pictures."""
        texts = [term.value for term in terms if isinstance(term.value, str)]
        if texts:
            return self.matcher.encode_texts(texts)
        pictures = [term.value for term in terms if not isinstance(term.value, str | np.ndarray)]
        return self.matcher.encode_images([open_picture(picture, self._side) for picture in pictures])

    def _keep_pictures(self, entries: Sequence[Entry], kept: LocalsSource | None) -> tuple[Kept | None, dict[str, int]]:
        """What the matcher keeps of the candidates that can be had, and the row of each.

        What was kept of a picture for an earlier query is not computed again, while the picture is the same.
        """
        known = self._remembered.find(entries)
        missing = [entry for entry in entries if entry.key not in known]
        shared = self.source is not None and self.source.same(kept)
        stored = [e for e in missing if shared and e.locals is not None]
        read = list(stored)
        parts: list[Kept] = []
        if stored:
            # PyTorch widens half precision several times faster than NumPy.
            arrays = [torch.from_numpy(np.array(e.locals)).float().numpy() for e in stored]
            parts.append(self.matcher.encode_images(arrays))
        images: list[Image.Image] = []
        for entry in missing:
            if shared and entry.locals is not None:
                continue
            try:
                images.append(open_picture(open_key(entry.key), self._side))
            except DiptychError:
                continue  # the file is gone or broken since it was indexed
            read.append(entry)
        if images:
            parts.append(self.matcher.encode_images(images))
        for entry, one in zip(read, (one for part in parts for one in part), strict=True):
            self._remembered.add(entry, one)
        rows = {key: row for row, key in enumerate([*known, *(entry.key for entry in read)])}
        items = [*known.values(), *parts]
        return (type(items[0]).cat(items) if items else None), rows

    @property
    def _side(self) -> int:
        return self.matcher.extractor().size


def _bytes(kept: Kept) -> int:
    return sum(tensor.nbytes for tensor in kept.tensors().values())


def _weighted(scores: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The weighted mean over terms (t, c) -> (c,); -inf where there is no score."""
    missing = np.isinf(scores).any(0)
    mean = weights @ np.where(missing, 0, scores) / np.abs(weights).sum()
    return np.where(missing, -np.inf, mean).astype(np.float32)
