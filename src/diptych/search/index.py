"""An index of pictures and sentences: made, filled, kept in step with folders, and searched."""

import hashlib
import json
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

import diptych
from diptych.common.errors import DiptychError
from diptych.search.files import Choice, What, roots_of
from diptych.search.open_store import open_store
from diptych.search.query import Asked, as_query
from diptych.search.read_items import NewEntry, Outcome, read_metadata
from diptych.search.results import Answer
from diptych.search.store import Condition, Kind, Layout, Stamp, Store, Value
from diptych.search.sync import Embed, SyncReport, Writer, sync

if TYPE_CHECKING:  # these need torch, which a run that finds nothing new does not
    import torch

    from diptych.search.embedder import Embedder, LocalsSource
    from diptych.search.rerank import Rerank
    from diptych.search.searching import Searcher

Metadata = Mapping[str, dict[str, Value]]
DEFAULT_MODEL = "default"


class Index:
    """Entries in a store, and the model that embeds them. Threads may search one index while one of them adds."""

    def __init__(self, store: Store, device: "torch.device | str | None" = None) -> None:
        self.store = store
        self.device = device
        self._lock = threading.RLock()
        self._embedder: Embedder | None = None
        self._searcher: Searcher | None = None
        self._checked_pictures = False
        self._properties = store.properties

    # Making and opening.

    @classmethod
    def create(
        cls,
        address: str | Path,
        model: "str | Path | Embedder | None" = DEFAULT_MODEL,
        *,
        keep_locals: str | None = None,
        layout: Layout | None = None,
        device: "torch.device | str | None" = None,
    ) -> "Index":
        """A new index at a file's path or milvus://host:port/name; one that is there with the same model is opened.

        model: `default`, a run, a matcher's folder, or a CLIP or SigLIP model; None for vectors from elsewhere, whose
        `layout` must then be given
        keep_locals: a re-ranking model; what it needs of each picture is kept, so that re-ranking reads no pictures
        """
        from diptych.search.embedder import Embedder, load_embedder

        if model is None:
            if layout is None or keep_locals is not None:
                raise DiptychError("an index without a model needs the layout of its vectors, and keeps no locals")
            index = cls(open_store(address, layout), device)
            index._claim({"model": ""})
            return index
        embedder = model if isinstance(model, Embedder) else load_embedder(model, device)
        index = cls(open_store(address, embedder.layout), device)
        properties = {"model": embedder.name, "locals": ""}
        if keep_locals is not None:
            properties["locals"] = json.dumps(asdict(locals_of(keep_locals)))
        index._claim(properties)
        index._check(embedder, pictures=False)
        index._embedder = embedder
        return index

    @classmethod
    def open(cls, address: str | Path, *, device: "torch.device | str | None" = None) -> "Index":
        """An index that is there; its model is loaded when it is first needed."""
        store = open_store(address)
        index = cls(store, device)
        if "model" not in index._properties:
            store.close()
            raise DiptychError(f"{store.address}: the index was never filled; run `diptych index` again")
        return index

    def _claim(self, properties: dict[str, str]) -> None:
        """Write down what the index is, or see that it is the same already."""
        known = self._properties.get("model")
        if known is None:
            self.store.set_properties({**properties, "made-with": f"diptych {diptych.__version__}"})
        elif known != properties["model"]:
            self.store.close()
            made, asked = (name or "vectors from elsewhere" for name in (known, properties["model"]))
            raise DiptychError(
                f"{self.store.address}: made with {made!r}, not {asked!r}; index into another file with --index"
            )
        elif properties.get("locals") and properties["locals"] != self._properties.get("locals"):
            self.store.close()
            raise DiptychError(f"{self.store.address}: made without these local features; index into another file")
        self._properties = self.store.properties

    @property
    def model(self) -> str:
        """The name of its model; empty where its vectors came from elsewhere."""
        return self._properties.get("model", "")

    @property
    def kept_locals(self) -> "LocalsSource | None":
        """What the local features that it keeps were computed with."""
        from diptych.search.embedder import LocalsSource

        text = self._properties.get("locals")
        return LocalsSource(**json.loads(text)) if text else None

    @property
    def embedder(self) -> "Embedder":
        """The model, loaded on first use, and seen to be the one that the index was made with."""
        from diptych.search.embedder import load_embedder

        with self._lock:
            if self._embedder is None:
                if not self.model:
                    raise DiptychError(f"{self.store.address}: has vectors from elsewhere and no model to embed with")
                embedder = load_embedder(self.model, self.device)
                self._check(embedder, pictures=False)
                self._embedder = embedder
            return self._embedder

    def _check(self, embedder: "Embedder", pictures: bool) -> None:
        """See by a probe that the model is the one that was used before; write it down where it is the first."""
        from diptych.search.embedder import same_probe

        name = "probe-picture" if pictures else "probe-text"
        probe, known = embedder.probe(pictures), self._properties.get(name)
        if known is None and (pictures or not self.count()):
            self.store.set_properties({name: probe})
            self._properties[name] = probe
        elif known is not None and not same_probe(known, probe):
            raise DiptychError(
                f"{self.store.address}: the model {embedder.name!r} is no longer what it was when the index was made: "
                "its vectors differ; index again into another file"
            )

    # Filling.

    def sync(
        self,
        *paths: str | Path,
        what: What = "pictures",
        exclude: Sequence[str] = (),
        hidden: bool = False,
        archives: bool = False,
        metadata: Metadata | Path | None = None,
        batch_size: int | None = None,
        workers: int | None = None,
        embed: Embed | None = None,
    ) -> SyncReport:
        """Bring the index in step with folders and files: new, changed, moved and deleted ones are noticed.

        metadata: columns for pictures by absolute path, or a csv, jsonl or parquet file with a column of paths
        embed: embeds in place of the index's own model, as processes on several machines do
        """
        if not paths:
            raise DiptychError("expected at least one folder or file to index")
        columns = read_metadata(metadata) if isinstance(metadata, Path) else metadata or {}
        choice = Choice(what, tuple(exclude), hidden, archives)
        report = sync(
            self.store,
            roots_of(paths),
            lambda: embed or self.local_embed(batch_size, workers),
            choice,
            columns,
        )
        if report.added or report.changed:
            self.prepare()
        return report

    def add(
        self,
        pictures: Mapping[str, Image.Image] | None = None,
        sentences: Mapping[str, str] | None = None,
        metadata: Metadata | None = None,
    ) -> SyncReport:
        """Add pictures and sentences in memory, by key; a key that is there already is replaced.

        metadata: columns by key. Files are added with `sync`.
        """
        now, columns = time.time_ns(), metadata or {}
        entries = [
            NewEntry(key, "picture", Stamp(key, 0, now, _pixels_digest(image)), _Held(image), "", columns.get(key, {}))
            for key, image in (pictures or {}).items()
        ]
        entries += [
            NewEntry(key, "sentence", Stamp(key, len(text), now, ""), None, text, columns.get(key, {})).with_digest()
            for key, text in (sentences or {}).items()
        ]
        return self.add_entries(entries)

    def add_entries(self, entries: Iterable[NewEntry]) -> SyncReport:
        """Embed and add entries of any kind; those that cannot be read are in the report."""
        started = time.monotonic()
        writer = Writer(self.store, Choice())
        for outcomes in self.local_embed()(writer.send(entry) for entry in entries):
            writer.take(outcomes)
        writer.commit()
        return SyncReport(
            writer.added, writer.changed, seconds=time.monotonic() - started, problems=tuple(writer.problems)
        )

    def add_vectors(
        self,
        keys: Sequence[str],
        vectors: np.ndarray,
        kind: Kind = "picture",
        texts: Sequence[str] | None = None,
        metadata: Metadata | None = None,
    ) -> None:
        """Add vectors from elsewhere: (n, d), or (n, K, d) for sets; they are brought to length 1."""
        from diptych.search.exchange import entries_of

        self.store.add(entries_of(self.store, keys, vectors, kind, texts, metadata or {}))

    def delete(self, keys: Sequence[str]) -> int:
        """Remove entries; how many were there."""
        return self.store.delete(keys)

    def prepare(self) -> None:
        """Make later searches quick, and work out the background that confidences stand against."""
        with self._lock:
            loaded = self._embedder is not None
        background = self.searcher.background
        background.forget()
        self.store.prepare(background.sentences() if loaded else None)
        if loaded:
            for kind in ("picture", "sentence"):
                if self.store.count([Condition("kind", "=", kind)]):
                    background.keep(kind)

    def local_embed(self, batch_size: int | None = None, workers: int | None = None) -> Embed:
        """The function that embeds entries with this process's model."""
        from diptych.search.pipeline import LocalsKeeper, embed_entries

        embedder = self.embedder
        if not self._checked_pictures:
            self._check(embedder, pictures=True)
            self._checked_pictures = True
        source = self.kept_locals
        keeper = None if source is None else LocalsKeeper(source, embedder)

        def embed(entries: Iterable[NewEntry]) -> Iterator[list[Outcome]]:
            return embed_entries(entries, embedder, keeper, batch_size=batch_size, workers=workers)

        return embed

    # Searching.

    @property
    def searcher(self) -> "Searcher":
        """What searches it."""
        from diptych.search.searching import Searcher

        with self._lock:
            if self._searcher is None:
                self._searcher = Searcher(self.store, lambda: self.embedder, lambda: self.kept_locals)
            return self._searcher

    def search(
        self,
        query: Asked,
        top: int = 10,
        *,
        kind: Kind = "picture",
        where: Sequence[Condition] = (),
        threshold: float | None = None,
        least_confidence: float | None = None,
        confidence: bool = True,
        rerank: "Rerank | None" = None,
        group: float | None = None,
    ) -> Answer:
        """The best entries for a sentence, a picture, a vector, or several terms with weights.

        where: filters; threshold, least_confidence: least score and confidence; group: near duplicates become one
        """
        from diptych.search.searching import Options

        options = Options(top, kind, tuple(where), threshold, least_confidence, confidence, rerank, group)
        return self.searcher.search([as_query(query)], options)[0]

    def search_batch(
        self,
        queries: Sequence[Asked],
        top: int = 10,
        *,
        kind: Kind = "picture",
        where: Sequence[Condition] = (),
        threshold: float | None = None,
        least_confidence: float | None = None,
        confidence: bool = True,
        rerank: "Rerank | None" = None,
        group: float | None = None,
    ) -> list[Answer]:
        """The same for many queries, embedded and retrieved together."""
        from diptych.search.searching import Options

        options = Options(top, kind, tuple(where), threshold, least_confidence, confidence, rerank, group)
        return self.searcher.search([as_query(query) for query in queries], options)

    def count(self, where: Sequence[Condition] = ()) -> int:
        """How many entries fit."""
        return self.store.count(where)

    def __len__(self) -> int:
        return self.store.count()

    # In and out.

    def export(self, path: str | Path) -> int:
        """Write all entries with their vectors to a .npz or .parquet file; how many."""
        from diptych.search.exchange import export

        return export(self.store, Path(path))

    def import_(self, path: str | Path) -> int:
        """Add the entries of a .npz or .parquet file, as `export` writes them or made elsewhere; how many."""
        from diptych.search.exchange import import_

        return import_(self.store, Path(path))

    def close(self) -> None:
        """Let go of files and connections."""
        self.store.close()

    def __enter__(self) -> "Index":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Held:
    """A picture that is in memory already."""

    def __init__(self, image: Image.Image) -> None:
        self.image = image

    def __call__(self) -> Image.Image:
        return self.image


def _pixels_digest(image: Image.Image) -> str:
    return hashlib.blake2b(image.tobytes(), digest_size=16).hexdigest()


def locals_of(reranker: str) -> "LocalsSource":
    """What a re-ranking model needs of each picture."""
    from diptych.encoders.images import FeatureEncoder
    from diptych.search.embedder import LocalsSource, load_search_matcher

    encoder = load_search_matcher(reranker, "cpu").image_encoder
    source = LocalsSource.of(encoder.config) if isinstance(encoder, FeatureEncoder) else None
    if source is None:
        raise DiptychError(
            f"{reranker}: reads pictures itself; only what a model over local features needs can be kept"
        )
    return source


def open_index(
    address: str | Path,
    model: str | None = None,
    *,
    keep_locals: str | None = None,
    device: "torch.device | str | None" = None,
) -> Index:
    """The index at an address, made where there is none; a model that is named must be the one it was made with."""
    from diptych.search.names import canonical_name

    try:
        index = Index.open(address, device=device)
    except DiptychError:
        if not _can_be_made(address):
            raise
        return Index.create(address, model or DEFAULT_MODEL, keep_locals=keep_locals, device=device)
    named = None if model is None else canonical_name(model)
    if named is not None and named != index.model and f"{named}/best" != index.model:
        known = index.model or "vectors from elsewhere"
        index.close()
        raise DiptychError(f"{address}: made with {known!r}, not {named!r}; index into another file with --index")
    if keep_locals is not None and (index.kept_locals is None or not index.kept_locals.same(locals_of(keep_locals))):
        index.close()
        raise DiptychError(f"{address}: made without what {keep_locals} needs; index into another file with --index")
    return index


def _can_be_made(address: str | Path) -> bool:
    """Whether there is no index yet: none at all, or one whose maker was killed before it wrote down its model."""
    if "://" in str(address):
        return str(address).startswith("milvus:")
    if not Path(address).exists():
        return True
    try:
        store = open_store(address)
    except DiptychError:
        return False
    unfilled = "model" not in store.properties
    store.close()
    return unfilled
