"""What the server does, for the API and the page alike: every method may be called by any thread."""

import hashlib
import os
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from itertools import islice
from typing import Any, TypeVar

import numpy as np
import torch
from PIL import Image

from diptych.common.errors import DiptychError
from diptych.data.pictures import heic_is_read
from diptych.explain.why import plain
from diptych.search.index import Index
from diptych.search.store import Condition, Entry, Kind, Value
from diptych.web.batching import Batcher
from diptych.web.changes import Changes
from diptych.web.errors import Busy, NotFound
from diptych.web.explaining import Explainer
from diptych.web.finding import Finder, Job, check_terms, job_of, terms_of_line
from diptych.web.folders import Folders, indexed_folders
from diptych.web.ids import Ids
from diptych.web.metrics import Metrics
from diptych.web.pictures import SIZES, Kept, Uploads, jpeg_of, opener
from diptych.web.pools import Pool
from diptych.web.schemas import RerankRequest, SearchAnswer, SearchRequest
from diptych.web.settings import Settings, cores_each, uploads_beside

R = TypeVar("R")
SECRET = "serve-secret"
# Entries that are looked at for the names of columns.
LOOKED_AT, SAMPLE = 20_000, 500
COUNT_AGAIN = 5.0
FORGET_AFTER = 4096


class Service:
    """One index, its models, and the threads that work for requests.

    Plain sentences have a thread of their own that answers them in batches; queries with pictures or several terms
    have another. Re-ranking, explaining, pictures and changes each have a pool with a short queue.
    """

    def __init__(self, settings: Settings, index: Index) -> None:
        self.settings = settings
        self.index = index
        self.uploads = Uploads()
        self.ids = Ids(_secret(index))
        uploads = settings.uploads or uploads_beside(index.store.address)
        self.changes = Changes(index, uploads, settings.max_pixels)
        more = [*settings.roots, str(self.changes.folder)]
        self.folders: Folders = Folders(more) if settings.roots else indexed_folders(index, more)
        self.finder = Finder(index, self.ids, self.folders, self._term_value)
        self.metrics = Metrics(self._lanes, self._counts)
        self._thumbnails: Kept[bytes] = Kept(64 << 20, 20_000)
        self._columns: list[str] | None = None
        self._counted: tuple[float, dict[str, int]] | None = None
        self._explainer = Explainer(index, settings.rerank)
        self.sentences = self._batcher("search", self.finder.run)
        self.mixed = self._batcher("picture search", self._run_mixed)
        self._mixed_so_far = 0
        self.pools = {
            "rerank": Pool("rerank", 1, 16, _few_threads),
            "explain": Pool("explain", 1, 64, _few_threads),
            "embed": Pool("embed", 1, 32, _few_threads),
            "pictures": Pool("pictures", 2, 256, _few_threads),
            "uploads": Pool("uploads", 2, 32, _few_threads),
            "changes": Pool("changes", 1, 16, _few_threads),
        }

    def _batcher(
        self, name: str, work: Callable[[Sequence[Job]], Sequence[SearchAnswer | Exception]]
    ) -> Batcher[Job, SearchAnswer]:
        settings = self.settings
        return Batcher(
            name,
            work,
            most=settings.batch,
            wait=settings.batch_wait,
            queue=settings.queue,
            ready=_few_threads,
            seen=self.metrics.batch(name),
        )

    # Beginning and end.

    def warm(self) -> None:
        """Load the models and run each once, so that the first request does not have to wait for them."""
        heic_is_read()
        reranker = self.settings.rerank
        if reranker is not None:
            # Its modes must not be switched while other threads use it.
            self.index.searcher.reranker(reranker).matcher.eval()
        self.overview()
        if not self.index.model or not len(self.index):
            return
        self.index.search("anything", 1)
        if self.overview()["pictures"]:
            self.index.search(Image.new("RGB", (64, 64)), 1)

    def close(self) -> None:
        """Finish what is at work and drop what waits; the index stays open."""
        for batcher in (self.sentences, self.mixed):
            batcher.close()
        for pool in self.pools.values():
            pool.close()

    def begin(self, pool: str, work: Callable[..., R], *arguments: Any) -> Future[R]:
        """Have something done in a pool; an error where too much waits for it already."""
        return self.pools[pool].submit(lambda: work(*arguments))

    def wait(self, future: Future[R]) -> R:
        """What became of it, for callers that are threads themselves."""
        try:
            return future.result(self.settings.timeout)
        except TimeoutError:
            future.cancel()
            raise late() from None
        except CancelledError:
            raise closing() from None

    # Searching.

    def begin_search(self, request: SearchRequest, picture: Image.Image | None = None) -> Future[SearchAnswer]:
        """A search on its way to where it is done."""
        job = job_of(request, self.settings.rerank, picture)
        if job.options.rerank is not None:
            return self.begin("rerank", self._search_alone, job)
        return (self.sentences if job.plain else self.mixed).submit(job)

    def search(self, request: SearchRequest) -> SearchAnswer:
        """The best entries for a query."""
        return self.wait(self.begin_search(request))

    def search_picture(self, image: Image.Image, request: SearchRequest) -> SearchAnswer:
        """The best entries for a picture, together with the request's own terms."""
        return self.wait(self.begin_search(request, image))

    def _run_mixed(self, jobs: Sequence[Job]) -> Sequence[SearchAnswer | Exception]:
        self._mixed_so_far += len(jobs)
        if self._mixed_so_far > FORGET_AFTER:
            # What confidences stand against is kept for every mixture of weights that was ever asked for.
            self._mixed_so_far = 0
            self.index.searcher.background.forget()
        return self.finder.run(jobs)

    def _search_alone(self, job: Job) -> SearchAnswer:
        answer = self.finder.run([job])[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def rerank(self, request: RerankRequest) -> list[tuple[str, float | None]]:
        """The re-ranking model's scores of entries of one kind, best first."""
        return self.wait(self.begin_rerank(request))

    def begin_rerank(self, request: RerankRequest) -> Future[list[tuple[str, float | None]]]:
        """The same, on its way."""
        if self.settings.rerank is None:
            raise DiptychError("this server has no re-ranking model; start it with --rerank MODEL")
        if (request.query is None) == (not request.terms):
            raise DiptychError("expected either a query or terms")
        terms = list(request.terms) if request.query is None else terms_of_line(request.query)
        check_terms(terms)
        return self.begin("rerank", self._rerank, self.settings.rerank, terms, request.ids)

    def _rerank(self, model: str, terms: list[Any], ids: Sequence[str]) -> list[tuple[str, float | None]]:
        entries = [self.entry(id, locals=True) for id in dict.fromkeys(ids)]
        kinds: set[Kind] = {entry.kind for entry in entries}
        if len(kinds) > 1:
            raise DiptychError("ids: expected only pictures or only sentences")
        query = self.finder.query(terms)
        reranker = self.index.searcher.reranker(model)
        scores = reranker.scores([query], [entries], kinds.pop(), self.index.kept_locals)[0]
        told = [
            (self.ids.of(entry.key), float(score) if np.isfinite(score) else None)
            for entry, score in zip(entries, scores, strict=True)
        ]
        return sorted(told, key=lambda pair: -np.inf if pair[1] is None else pair[1], reverse=True)

    # Entries and pictures.

    def entry(self, id: str, locals: bool = False) -> Entry:
        """The entry of an id; an error where there is none."""
        key = self.ids.key(id)
        found = None if key is None else self.index.store.get([key], locals=locals)[0]
        if found is None:
            raise NotFound("there is no entry with this id")
        return found

    def _term_value(self, id: str) -> object:
        """What an id of a query stands for: an upload, a sentence, a picture, or what is left of one."""
        if id.startswith("upload-"):
            return self.uploads.get(id)
        entry = self.entry(id)
        if entry.kind == "sentence":
            return entry.text
        try:
            return opener(entry.key, self.folders.resolve)
        except NotFound:
            return entry.vectors  # the file is gone, or must not be read; its vectors are still here

    def keep_upload(self, image: Image.Image) -> str:
        """Keep a picture to search with; its id."""
        return self.uploads.keep(image)

    def thumbnail(self, id: str, size: str | int = "320") -> bytes:
        """A JPEG of an entry or an upload; size: 160, 320, 640, 1280 or full."""
        return self.wait(self.begin("pictures", self.make_thumbnail, id, str(size)))

    def make_thumbnail(self, id: str, size: str) -> bytes:
        """The same, in the thread that calls it."""
        if size not in SIZES:
            raise DiptychError(f"size: expected one of {', '.join(SIZES)}")
        if id.startswith("upload-"):
            image = self.uploads.get(id)
            return jpeg_of(image.copy, size)
        entry = self.entry(id)
        if entry.kind != "picture":
            raise NotFound("there is no picture to show of this entry")
        source = opener(entry.key, self.folders.resolve)
        name = (entry.key, entry.stamp, size)
        data = self._thumbnails.get(name)
        if data is None:
            try:
                data = jpeg_of(source, size)
            except DiptychError:
                raise NotFound("the picture of this entry cannot be read any more") from None
            self._thumbnails.put(name, data, len(data))
        return data

    # Explaining and embedding.

    def explain(self, id: str, sentence: str, model: str | None = None) -> dict[str, Any]:
        """Why a picture and a sentence match, by the searching model ("fast") or the re-ranking one ("reranker")."""
        return self.wait(self.begin("explain", self.make_explanation, id, sentence, model))

    def make_explanation(self, id: str, sentence: str, model: str | None = None) -> dict[str, Any]:
        """The same, in the thread that calls it, which must be the only one."""
        if id.startswith("upload-"):
            return self._explainer.explain(self.uploads.get(id), sentence, model or "fast")
        entry = self.entry(id)
        if entry.kind != "picture":
            raise DiptychError("id: expected a picture's")
        return self._explainer.explain(opener(entry.key, self.folders.resolve), sentence, model or "fast")

    def embed_texts(self, sentences: Sequence[str]) -> list[Any]:
        """Unit vectors of sentences, in the thread that calls it."""
        if any(not sentence.strip() for sentence in sentences):
            raise DiptychError("sentences: one of them is empty")
        return _vectors(self.index.embedder.embed_texts(sentences))

    def embed_picture(self, image: Image.Image) -> list[Any]:
        """Unit vectors of a picture, in the thread that calls it."""
        return _vectors(self.index.embedder.embed_pictures([image]))

    # Changing.

    def add_pictures(self, files: Sequence[tuple[str, bytes]], metadata: Mapping[str, Value]) -> list[str]:
        """Add pictures, in the thread that calls it, which must be the only one; their ids."""
        keys = self.changes.add_pictures(files, metadata)
        self._columns = self._counted = None
        return [self.ids.of(key) for key in keys]

    def add_sentences(self, sentences: Mapping[str, str]) -> list[str]:
        """Add sentences, in the thread that calls it, which must be the only one; their ids."""
        keys = self.changes.add_sentences(sentences)
        self._counted = None
        return [self.ids.of(key) for key in keys]

    def delete(self, id: str) -> int:
        """Take an entry out, in the thread that calls it, which must be the only one."""
        deleted = self.changes.delete(self.entry(id).key)
        self._counted = None
        return deleted

    # Telling of itself.

    def overview(self) -> dict[str, Any]:
        """What there is to search."""
        counts = self._counts()
        columns = self._columns
        if columns is None:
            columns = self._columns = _columns(self.index)
        return {
            "entries": sum(counts.values()),
            "pictures": counts["picture"],
            "sentences": counts["sentence"],
            "model": self.shown_name("model"),
            "reranker": None if self.settings.rerank is None else self.shown_name("reranker"),
            "columns": columns,
            "credits": self.settings.credits,
        }

    def shown_name(self, which: str) -> str:
        """The name of the `model` or the `reranker` as it is shown: of a folder, its last part."""
        name = self.index.model if which == "model" else self.settings.rerank or ""
        return os.path.basename(name.rstrip("/"))

    def shown_path(self, id: str) -> str:
        """The path of an entry as it is shown."""
        return self.folders.shown(self.ids.key(id) or "")

    def _counts(self) -> dict[str, int]:
        """Entries by kind; in a large index counting takes a while, so the answer is good for some seconds."""
        known = self._counted
        if known is None or time.monotonic() - known[0] > COUNT_AGAIN:
            counts = {kind: self.index.count([Condition("kind", "=", kind)]) for kind in ("picture", "sentence")}
            known = self._counted = (time.monotonic(), counts)
        return known[1]

    def _lanes(self) -> dict[str, tuple[int, int]]:
        lanes: list[Batcher[Job, SearchAnswer] | Pool] = [self.sentences, self.mixed, *self.pools.values()]
        return {lane.name: (lane.size, lane.refused) for lane in lanes}


def late() -> Busy:
    """It took too long."""
    return Busy("this took too long and was given up; try again in a moment", 5)


def closing() -> Busy:
    """The server is going."""
    return Busy("the server is stopping", 10)


def _secret(index: Index) -> bytes:
    """What ids are made with: kept in the index, so that they last; where it cannot be written, made anew."""
    known = index.store.properties.get(SECRET)
    if known is None:
        known = secrets.token_hex(16)
        with suppress(DiptychError):
            index.store.set_properties({SECRET: known})
    return hashlib.blake2b(known.encode()).digest()


def _columns(index: Index) -> list[str]:
    """The names of metadata columns, found by looking at some of the entries."""
    keys = [stamp.key for stamp in islice(index.store.stamps(), LOOKED_AT)]
    step = max(1, len(keys) // SAMPLE)
    names = {name for entry in index.store.get(keys[::step], locals=False) if entry for name in entry.metadata}
    return sorted(names)


def _few_threads() -> None:
    torch.set_num_threads(cores_each())  # a setting of each thread


def _vectors(vectors: np.ndarray) -> list[Any]:
    """(n, K, d) as lists; without the sets where each is one vector."""
    return plain(vectors[:, 0] if vectors.shape[1] == 1 else vectors)
