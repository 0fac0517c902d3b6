"""An index of pictures and sentences: made, filled, kept in step with folders, and searched."""

import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import numpy as np
from PIL import Image

from diptych.common.errors import DiptychError
from diptych.search.asking.options import Options, OptionsByName
from diptych.search.asking.query import Asked, as_query
from diptych.search.asking.results import RankedResults
from diptych.search.filling.metadata import read_metadata
from diptych.search.filling.new_entry import NewEntry, Outcome, held_picture, held_sentence
from diptych.search.filling.plan import WHOLE
from diptych.search.filling.sync import Embed, SyncReport, Writer, sync
from diptych.search.filling.walk import Choice, What, roots_of
from diptych.search.models.index_model import DEFAULT_MODEL, IndexModel, locals_of
from diptych.search.stores.address import open_store
from diptych.search.stores.keys import file_of
from diptych.search.stores.store import Condition, Kind, Layout, Store, Value

if TYPE_CHECKING:  # these need torch, which a run that finds nothing new does not
    import torch

    from diptych.search.asking.searcher import Searcher
    from diptych.search.models.embedder import Embedder, LocalsSource

Metadata = Mapping[str, dict[str, Value]]
# Properties of this name say which folders and files it was filled from.
ROOT = "root:"


class Index:
    """Entries in a store, and the model that embeds them. Threads may search one index while one of them adds."""

    def __init__(self, store: Store, device: "torch.device | str | None" = None) -> None:
        self.store = store
        self._model = IndexModel(store, device)
        self._lock = threading.RLock()
        self._searcher: Searcher | None = None

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
        from diptych.search.models.embedder import Embedder, load_embedder

        if model is None:
            if layout is None or keep_locals is not None:
                raise DiptychError("an index without a model needs the layout of its vectors, and keeps no locals")
            index = cls(open_store(address, layout), device)
            index._model.claim("")
            return index
        embedder = model if isinstance(model, Embedder) else load_embedder(model, device)
        index = cls(open_store(address, embedder.layout), device)
        index._model.claim(embedder.name, None if keep_locals is None else locals_of(keep_locals))
        index._model.use(embedder)
        return index

    @classmethod
    def open(cls, address: str | Path, *, device: "torch.device | str | None" = None) -> "Index":
        """An index that is there; its model is loaded when it is first needed."""
        store = open_store(address)
        index = cls(store, device)
        if not index._model.known:
            store.close()
            raise DiptychError("the index was never filled; run `diptych index` again", where=store.address)
        return index

    @property
    def model(self) -> str:
        """The name of its model; empty where its vectors came from elsewhere."""
        return self._model.name

    @property
    def kept_locals(self) -> "LocalsSource | None":
        """What the local features that it keeps were computed with."""
        return self._model.kept_locals

    @property
    def embedder(self) -> "Embedder":
        """The model, loaded on first use, and seen to be the one that the index was made with."""
        return self._model.embedder

    @property
    def roots(self) -> tuple[str, ...]:
        """The folders and files that it was ever brought in step with, as absolute paths."""
        return tuple(name.removeprefix(ROOT) for name in self.store.properties if name.startswith(ROOT))

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
        delete: bool = False,
    ) -> SyncReport:
        """Bring the index in step with folders and files: new, changed, moved and deleted ones are noticed.

        metadata: columns for pictures by absolute path, or a csv, jsonl or parquet file with a column of paths
        embed: embeds in place of the index's own model, as processes on several machines do
        delete: where all or most of a folder is gone, delete its entries too; else they stay, and the report's
        `missing` says so, since a disk may only not be mounted
        """
        if not paths:
            raise DiptychError("expected at least one folder or file to index")
        columns = read_metadata(metadata) if isinstance(metadata, Path) else metadata or {}
        choice = Choice(what, tuple(exclude), hidden, archives)
        roots = roots_of(paths)
        new = {ROOT + root: "" for root in set(roots) - set(self.roots)}
        if new:
            self.store.set_properties(new)
        report = sync(
            self.store,
            roots,
            lambda: embed or self.local_embed(batch_size, workers),
            choice,
            columns,
            delete,
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
        columns = metadata or {}
        entries = [held_picture(key, image, columns.get(key)) for key, image in (pictures or {}).items()]
        entries += [held_sentence(key, text, columns.get(key)) for key, text in (sentences or {}).items()]
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
        from diptych.search.filling.exchange import entries_of

        self.store.add(entries_of(self.store, keys, vectors, kind, texts, metadata or {}))

    def delete(self, keys: Sequence[str]) -> int:
        """Remove entries; how many were there."""
        if isinstance(keys, str):  # it is a sequence too, of its letters
            raise DiptychError(f"keys: expected several keys, got the text {keys!r}; one key is given as [{keys!r}]")
        return self.store.delete(keys)

    def check(self, *, delete: bool = False) -> tuple[str, ...]:
        """Read everything, and tell the keys of entries whose vectors are not as they were written.

        delete: take them out, so that the next `sync` embeds them again
        """
        damaged = tuple(self.store.damaged())
        if damaged and delete:
            self.store.delete(damaged)
            # A file of several entries is looked into again only where not all of them are known to be there.
            files = {file_of(key) for key in damaged} - set(damaged)
            self.store.set_properties({WHOLE + file: "" for file in files})
        return damaged

    def prepare(self) -> None:
        """Make later searches quick, and work out the background that confidences stand against."""
        loaded = self._model.loaded
        background = self.searcher.background
        background.forget()
        self.store.prepare(background.sentences() if loaded else None)
        if loaded:
            for kind in ("picture", "sentence"):
                if self.store.count([Condition("kind", "=", kind)]):
                    background.keep(kind)

    def local_embed(self, batch_size: int | None = None, workers: int | None = None) -> Embed:
        """The function that embeds entries with this process's model."""
        from diptych.search.filling.pipeline import LocalsKeeper, embed_entries

        embedder, source = self._model.picture_embedder, self.kept_locals
        keeper = None if source is None else LocalsKeeper(source, embedder)

        def embed(entries: Iterable[NewEntry]) -> Iterator[list[Outcome]]:
            return embed_entries(entries, embedder, keeper, batch_size=batch_size, workers=workers)

        return embed

    # Searching.

    @property
    def searcher(self) -> "Searcher":
        """What searches it."""
        from diptych.search.asking.searcher import Searcher

        with self._lock:
            if self._searcher is None:
                self._searcher = Searcher(self.store, lambda: self.embedder, lambda: self.kept_locals)
            return self._searcher

    def search(self, query: Asked, top: int = 10, **options: Unpack[OptionsByName]) -> RankedResults:
        """The `top` best entries for a sentence, a picture, a vector, or several terms with weights."""
        return self.search_batch([query], top, **options)[0]

    def search_batch(
        self, queries: Sequence[Asked], top: int = 10, **options: Unpack[OptionsByName]
    ) -> list[RankedResults]:
        """The same for many queries, embedded and retrieved together."""
        return self.searcher.search([as_query(query) for query in queries], Options(top, **options))

    def count(self, where: Sequence[Condition] = ()) -> int:
        """How many entries fit."""
        return self.store.count(where)

    def __len__(self) -> int:
        return self.store.count()

    # In and out.

    def export(self, path: str | Path) -> int:
        """Write all entries with their vectors to a .npz or .parquet file; how many."""
        from diptych.search.filling.exchange import export

        return export(self.store, Path(path))

    def import_(self, path: str | Path) -> int:
        """Add the entries of a .npz or .parquet file, as `export` writes them or made elsewhere; how many."""
        from diptych.search.filling.exchange import import_

        return import_(self.store, Path(path))

    def close(self) -> None:
        """Let go of files and connections."""
        self.store.close()

    def __enter__(self) -> "Index":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
