"""What the server does, for the API and the page alike: every method may be called by any thread."""

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from typing import Any, TypeVar

import numpy as np
from PIL import Image

import diptych
from diptych.common.errors import DiptychError
from diptych.data.pictures import heic_is_read
from diptych.explain.why import plain
from diptych.search.index import Index
from diptych.search.stores.keys import file_of
from diptych.search.stores.store import Condition, Kind, Value
from diptych.web.errors import Busy
from diptych.web.schemas import PictureTerm, RerankRequest, SearchAnswer, SearchRequest, TextTerm
from diptych.web.service.answers import Answers
from diptych.web.service.changes import Changes
from diptych.web.service.desktop import Desktop
from diptych.web.service.entries import Entries
from diptych.web.service.explaining import Explainer
from diptych.web.service.finding import Finder, Job, check_terms, conditions_of, job_of, terms_of_line
from diptych.web.service.folders import Folders, indexed_folders
from diptych.web.service.holdings import Holdings
from diptych.web.service.ids import Ids, ids_of
from diptych.web.service.lanes import Lanes
from diptych.web.service.metrics import Look, Metrics
from diptych.web.service.originals import Originals
from diptych.web.service.readiness import LOOK_WITHIN, Readiness
from diptych.web.service.recent import Recent
from diptych.web.service.shared import OneWriter, Shared
from diptych.web.service.shared_uploads import SharedUploads
from diptych.web.service.uploads import KeepsUploads, Uploads
from diptych.web.settings import ServerSettings, uploads_of
from diptych.web.streaming import Places

R = TypeVar("R")
FORGET_AFTER = 4096
ZIPS_AT_ONCE = 4


class Service:
    """One index, its models, and the threads that work for requests.

    shared: what this process shares with the other workers of the server, where there are any
    """

    def __init__(self, settings: ServerSettings, index: Index, shared: Shared | None = None) -> None:
        self.settings = settings
        self.index = index
        self._writer = OneWriter(None if shared is None else shared.folder)
        folder = uploads_of(settings, index.store.address)
        self.changes = Changes(index, folder, settings.max_pixels, self._writer)
        more = [*settings.roots, str(self.changes.folder)]
        self.folders = Folders(more) if settings.roots else indexed_folders(index, more)
        self.ids = ids_of(index) if shared is None else Ids(shared.secret.encode())
        self.uploads: KeepsUploads = Uploads() if shared is None else SharedUploads(shared.uploads)
        self.entries = Entries(index, self.ids, self.folders, self.uploads)
        self.originals = Originals(self.entries, self.folders)
        self.desktop = Desktop(settings)
        self.zips = Places(settings.share(ZIPS_AT_ONCE), "zips")
        self.holdings = Holdings(index, settings)
        self.answers = Answers(lambda: index.store.state, settings.remembered)
        look = Look(self._counts, self._is_ready, self._about)
        self.metrics = Metrics(look, None if shared is None else shared.metrics)
        self.finder = Finder(
            index, self.ids, self.folders, self.entries.term_value, settings.originals, self.metrics.timed
        )
        self._explainer = Explainer(index, settings.rerank)
        self._explanations: Recent[dict[str, Any]] = Recent(64 << 20, 200)
        self.lanes = Lanes(settings, self._run, self._run_mixed, self.metrics.lane)
        self.readiness = Readiness(index, lambda: self.lanes.full)
        self._mixed_so_far = 0

    # Beginning and end.

    def warm(self) -> None:
        """Load the models and run each once, so that the first request does not have to wait for them."""
        started = time.perf_counter()
        self._warm()
        self.metrics.loaded(time.perf_counter() - started)
        self.readiness.loaded = True

    def _warm(self) -> None:
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
        self.lanes.close()

    def begin(self, pool: str, work: Callable[..., R], *arguments: Any) -> Future[R]:
        """Have something done in a pool; an error where too much waits for it already."""
        return self.lanes.begin(pool, work, *arguments)

    def wait(self, future: Future[R]) -> R:
        """What became of it, for callers that are threads themselves."""
        return self.lanes.wait(future)

    async def done(self, future: Future[R]) -> R:
        """What became of it, for callers that are no threads."""
        return await self.lanes.done(future)

    # The server itself.

    def begin_look(self) -> Future[str | None]:
        """What keeps the server from answering, None where nothing does, on its way."""
        return self.begin("look", self.readiness.now)

    def _is_ready(self) -> bool:
        try:
            return self.begin_look().result(LOOK_WITHIN) is None
        except (Busy, TimeoutError, CancelledError):
            return False

    def _counts(self) -> Mapping[str, int]:
        try:
            return self.holdings.counts()
        except DiptychError:
            return {}

    def _about(self) -> dict[str, str]:
        about = {"model": self.holdings.model, "version": diptych.__version__}
        try:
            identity = self.index.store.identity
        except DiptychError:
            return about
        # Another one where the index was made again.
        return {**about, "index": hashlib.blake2b(identity.encode(), digest_size=4).hexdigest()}

    # Searching.

    def begin_search(self, request: SearchRequest, picture: Image.Image | None = None) -> Future[SearchAnswer]:
        """A search on its way to where it is done, or what was found the last time if nothing changed since."""
        job = job_of(request, self.settings.rerank, picture)
        outcome = "remembered"

        def begin(job: Job) -> Future[SearchAnswer]:
            nonlocal outcome
            outcome = "answered"
            return self._begin_job(job)

        try:
            future = self.answers.of(job, begin)
        except Busy:
            self.metrics.searched("refused")
            raise
        future.add_done_callback(lambda done: self.metrics.searched(_outcome(done) or outcome))
        return future

    async def found(self, request: SearchRequest, picture: Image.Image | None = None) -> SearchAnswer:
        """The same for callers that are no threads, and must not wait for a server to tell the index's state."""
        if picture is not None or not self.settings.remembered or not self.index.store.state_takes_time:
            return await self.done(self.begin_search(request, picture))
        try:
            beginning = self.begin("state", self.begin_search, request)
        except Busy:
            self.metrics.searched("refused")
            raise
        return await self.done(await self.done(beginning))

    def _begin_job(self, job: Job) -> Future[SearchAnswer]:
        if job.options.rerank is not None:
            return self.begin("rerank", self._search_alone, job)
        return self.lanes.search(job)

    def search(self, request: SearchRequest) -> SearchAnswer:
        """The best entries for a query."""
        return self.wait(self.begin_search(request))

    def fitting(self, request: SearchRequest) -> int:
        """How many entries of its kind pass the filters of a request."""
        return self.index.count([*conditions_of(request), Condition("kind", "=", request.kind)])

    def _run(self, jobs: Sequence[Job]) -> Sequence[SearchAnswer | Exception]:
        if self._writer.others_prepared():
            # Another worker wrote down anew what confidences stand against.
            self.index.searcher.background.forget()
        return self.finder.run(jobs)

    def _run_mixed(self, jobs: Sequence[Job]) -> Sequence[SearchAnswer | Exception]:
        self._mixed_so_far += len(jobs)
        if self._mixed_so_far > FORGET_AFTER:
            # What confidences stand against is kept for every mixture of weights that was ever asked for.
            self._mixed_so_far = 0
            self.index.searcher.background.forget()
        return self._run(jobs)

    def _search_alone(self, job: Job) -> SearchAnswer:
        answer = self._run([job])[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def begin_rerank(self, request: RerankRequest) -> Future[list[tuple[str, float | None]]]:
        """The re-ranking model's scores of entries of one kind, best first, on their way."""
        if self.settings.rerank is None:
            raise DiptychError("this server has no re-ranking model; start it with --rerank MODEL")
        if (request.query is None) == (not request.terms):
            raise DiptychError("expected either a query or terms")
        terms = request.terms if request.query is None else terms_of_line(request.query)
        check_terms(terms)
        return self.begin("rerank", self._rerank, self.settings.rerank, terms, request.ids)

    def _rerank(
        self, model: str, terms: Sequence[TextTerm | PictureTerm], ids: Sequence[str]
    ) -> list[tuple[str, float | None]]:
        entries = [self.entries.get(id, locals=True) for id in dict.fromkeys(ids)]
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

    # Seeing.

    def overview(self) -> dict[str, Any]:
        """What there is to search."""
        return self.holdings.overview()

    def make_thumbnail(self, id: str, size: str) -> bytes:
        """A JPEG of an entry or an upload, in the thread that calls it; size: 160, 320, 640, 1280 or full."""
        return self.entries.thumbnail(id, size)

    def explain(self, id: str, sentence: str, model: str = "fast") -> dict[str, Any]:
        """Why a picture and a sentence match, by the searching model ("fast") or the re-ranking one ("reranker")."""
        return self.wait(self.begin("explain", self.make_explanation, id, sentence, model))

    def make_explanation(self, id: str, sentence: str, model: str) -> dict[str, Any]:
        """The same, in the thread that calls it, which must be the only one."""
        picture = self.entries.picture(id)  # an error where it may not be seen any more
        name = (self.entries.version(id), sentence, model)
        told = self._explanations.get(name)
        if told is None:
            told = self._explainer.explain(picture, sentence, model)
            self._explanations.put(name, told, 64 * (1 + len(told["words"])) * (1 + told["regions"]))
        return told

    # Files.

    def open_folder(self, id: str) -> str:
        """Open the folder of a picture on this machine's desktop; the name of the folder."""
        self.entries.get(id)
        return self.desktop.show(file_of(self.originals.path(id)))

    # Vectors.

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
        self.holdings.changed()
        return [self.ids.of(key) for key in keys]

    def add_sentences(self, sentences: Mapping[str, str]) -> list[str]:
        """Add sentences, in the thread that calls it, which must be the only one; their ids."""
        keys = self.changes.add_sentences(sentences)
        self.holdings.changed()
        return [self.ids.of(key) for key in keys]

    def delete(self, id: str) -> int:
        """Take an entry out, in the thread that calls it, which must be the only one."""
        deleted = self.changes.delete(self.entries.get(id).key)
        self.holdings.changed()
        return deleted


def _outcome(future: Future[SearchAnswer]) -> str | None:
    """What became of a search that gave no answer; None of one that did."""
    if future.cancelled():
        return "dropped"
    return None if future.exception() is None else "failed"


def _vectors(vectors: np.ndarray) -> list[Any]:
    """(n, K, d) as lists; without the sets where each is one vector."""
    return plain(vectors[:, 0] if vectors.shape[1] == 1 else vectors)
