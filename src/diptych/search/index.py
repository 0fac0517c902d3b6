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
from diptych.search.filling.describe import ReadText
from diptych.search.filling.metadata import read_metadata
from diptych.search.filling.new_entry import NewEntry, Outcome, held_picture, held_sentence
from diptych.search.filling.plan import WHOLE
from diptych.search.filling.roots import new_root, read_roots
from diptych.search.filling.sync import Embed, SyncReport, Writer, sync
from diptych.search.filling.walk import Choice, What, roots_of
from diptych.search.models.index_model import DEFAULT_MODEL, IndexModel, locals_of
from diptych.search.stores.address import open_store
from diptych.search.stores.keys import file_of
from diptych.search.stores.store import TEXT_IN_PICTURES, Condition, Kind, Layout, Store, Value

if TYPE_CHECKING:  # these need torch, which a run that finds nothing new does not
    import torch

    from diptych.search.asking.searcher import Searcher
    from diptych.search.models.embedder import Embedder, LocalsSource

Metadata = Mapping[str, dict[str, Value]]


class Index:
    """Entries in a store, and the model that embeds them. Threads may search one index while one of them adds.

    >>> with Index.create("photos.db", "model") as index:
    ...     report = index.sync("album")
    ...     answer = index.search("a red dog", top=2)
    >>> report.added, len(answer.results)
    (3, 2)
    """

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
        """A new index at a file's path or a server's address; one that is there with the same model is opened.

        model: `default`, a run, a matcher's folder, or a CLIP or SigLIP model; None for vectors from elsewhere, whose
        `layout` must then be given
        keep_locals: a re-ranking model; what it needs of each picture is kept, so that re-ranking reads no pictures

        >>> index = Index.create("album.db", "model")  # or "default", or "openai/clip-vit-base-patch32"
        >>> len(index)
        0
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
        """An index that is there; its model is loaded when it is first needed.

        >>> with Index.open("index.db") as index:
        ...     len(index)
        3
        """
        store = open_store(address)
        index = cls(store, device)
        if not index._model.known:
            store.close()
            raise DiptychError("the index was never filled; run `diptych index` again", where=store.address)
        return index

    @property
    def model(self) -> str:
        """The name of its model; empty where its vectors came from elsewhere.

        >>> Path(index.model).name
        'model'
        """
        return self._model.name

    @property
    def kept_locals(self) -> "LocalsSource | None":
        """What the local features that it keeps were computed with.

        >>> index.kept_locals is None  # it was made without `keep_locals`
        True
        """
        return self._model.kept_locals

    @property
    def embedder(self) -> "Embedder":
        """The model, loaded on first use, and seen to be the one that the index was made with.

        >>> index.embedder.embed_texts(["a red dog"]).shape
        (1, 1, 8)
        """
        return self._model.embedder

    @property
    def roots(self) -> tuple[str, ...]:
        """The folders and files that it was ever brought in step with, as absolute paths.

        >>> [Path(root).name for root in index.roots]
        ['album']
        """
        return tuple(root.path for root in read_roots(self.store.properties))

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
        retry: bool = False,
        text_in_pictures: bool | None = None,
    ) -> SyncReport:
        """Bring the index in step with folders and files: new, changed, moved and deleted ones are noticed.

        What is wanted of each is remembered, for `diptych.search.in_step.sync_all`.

        metadata: columns for pictures by absolute path, or a csv, jsonl or parquet file with a column of paths
        embed: embeds in place of the index's own model, as processes on several machines do
        delete: where all or most of a folder is gone, delete its entries too; else they stay, and the report's
        `missing` says so, since a disk may only not be mounted
        retry: try pictures again that could not be decoded, though nothing about them has changed
        text_in_pictures: read what is written in pictures, also in those that are there already; None goes on with what
        the index was last told

        >>> report = index.sync("album")
        >>> report.added, report.unchanged  # it was in step already
        (0, 3)
        """
        if not paths:
            raise DiptychError("expected at least one folder or file to index")
        columns = read_metadata(metadata) if isinstance(metadata, Path) else metadata or {}
        choice = Choice(what, tuple(exclude), hidden, archives)
        roots = roots_of(paths)
        known = self.store.properties
        told = {k: v for root in roots for k, v in new_root(root, choice, metadata).property.items()}
        new = {name: value for name, value in told.items() if known.get(name) != value}
        if new:
            self.store.set_properties(new)
        read_text = self._text_reader(text_in_pictures)
        report = sync(
            self.store,
            roots,
            lambda: embed or self.local_embed(batch_size, workers),
            choice,
            columns,
            delete,
            retry,
            read_text,
        )
        if report.added or report.changed:
            self.prepare()
        return report

    def _text_reader(self, wanted: bool | None) -> ReadText | None:
        """What reads text in pictures, where it is wanted; the index remembers that."""
        known = self.store.properties.get(TEXT_IN_PICTURES) == "yes"
        if wanted is None:
            wanted = known
        reader = None
        if wanted:
            from diptych.data.written import text_reader

            reader = text_reader()
        if wanted != known:
            # What was read before can still be found.
            self.store.set_properties({TEXT_IN_PICTURES: "yes" if wanted else "no longer"})
        return reader

    def add(
        self,
        pictures: Mapping[str, Image.Image] | None = None,
        sentences: Mapping[str, str] | None = None,
        metadata: Metadata | None = None,
    ) -> SyncReport:
        """Add pictures and sentences in memory, by key; a key that is there already is replaced.

        metadata: columns by key. Files are added with `sync`.

        >>> own = Index.create("own.db", "model")
        >>> own.add(pictures={"scan": Image.open("dog.png")}, sentences={"note": "two boat"}).added
        2
        """
        columns = metadata or {}
        entries = [held_picture(key, image, columns.get(key)) for key, image in (pictures or {}).items()]
        entries += [held_sentence(key, text, columns.get(key)) for key, text in (sentences or {}).items()]
        return self.add_entries(entries)

    def add_entries(self, entries: Iterable[NewEntry]) -> SyncReport:
        """Embed and add entries of any kind; those that cannot be read are in the report.

        >>> own = Index.create("entries.db", "model")
        >>> own.add_entries([held_sentence("note", "two boat", None)]).added
        1
        """
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
        """Add vectors from elsewhere: (n, d), or (n, K, d) for sets; they are brought to length 1.

        >>> vectors = Index.create("vectors.db", None, layout=Layout(dim=4))
        >>> vectors.add_vectors(["first", "second"], np.eye(4)[:2])
        >>> vectors.search(np.eye(4)[1], top=1).results[0].key
        'second'
        """
        from diptych.search.filling.exchange import entries_of

        self.store.add(entries_of(self.store, keys, vectors, kind, texts, metadata or {}))

    def delete(self, keys: Sequence[str]) -> int:
        """Remove entries; how many were there.

        >>> own = Index.create("fewer.db", "model")
        >>> report = own.add(sentences={"note": "two boat", "other": "a cat"})
        >>> own.delete(["note"]), len(own)
        (1, 1)
        """
        if isinstance(keys, str):  # it is a sequence too, of its letters
            raise DiptychError(f"keys: expected several keys, got the text {keys!r}; one key is given as [{keys!r}]")
        return self.store.delete(keys)

    def check(self, *, delete: bool = False) -> tuple[str, ...]:
        """Read everything, and tell the keys of entries whose vectors are not as they were written.

        delete: take them out, so that the next `sync` embeds them again

        >>> index.check()
        ()
        """
        damaged = tuple(self.store.damaged())
        if damaged and delete:
            self.store.delete(damaged)
            # A file of several entries is looked into again only where not all of them are known to be there.
            files = {file_of(key) for key in damaged} - set(damaged)
            self.store.set_properties({WHOLE + file: "" for file in files})
        return damaged

    def prepare(self) -> None:
        """Make later searches quick, and work out the background that confidences stand against.

        >>> index.prepare()
        """
        loaded = self._model.loaded
        background = self.searcher.background
        background.forget()
        self.store.prepare(background.sentences() if loaded else None)
        if loaded:
            for kind in ("picture", "sentence"):
                if self.store.count([Condition("kind", "=", kind)]):
                    background.keep(kind)

    def local_embed(self, batch_size: int | None = None, workers: int | None = None) -> Embed:
        """The function that embeds entries with this process's model.

        >>> embed = index.local_embed(batch_size=8)
        >>> len(list(embed([held_sentence("note", "two boat", None)])))
        1
        """
        from diptych.search.filling.pipeline import LocalsKeeper, embed_entries

        embedder, source = self._model.picture_embedder, self.kept_locals
        keeper = None if source is None else LocalsKeeper(source, embedder)

        def embed(entries: Iterable[NewEntry]) -> Iterator[list[Outcome]]:
            return embed_entries(entries, embedder, keeper, batch_size=batch_size, workers=workers)

        return embed

    # Searching.

    @property
    def searcher(self) -> "Searcher":
        """What searches it.

        >>> index.searcher is index.searcher
        True
        """
        from diptych.search.asking.searcher import Searcher

        with self._lock:
            if self._searcher is None:
                self._searcher = Searcher(self.store, lambda: self.embedder, lambda: self.kept_locals)
            return self._searcher

    def search(self, query: Asked, top: int = 10, **options: Unpack[OptionsByName]) -> RankedResults:
        """The `top` best entries for a sentence, a picture, a vector, or several terms with weights.

        >>> answer = index.search("a red dog", top=2)
        >>> [Path(result.path).suffix for result in answer.results]
        ['.png', '.png']
        >>> Path(index.search(Path("dog.png"), top=1).results[0].path).name
        'dog.png'
        """
        return self.search_batch([query], top, **options)[0]

    def search_batch(
        self, queries: Sequence[Asked], top: int = 10, **options: Unpack[OptionsByName]
    ) -> list[RankedResults]:
        """The same for many queries, embedded and retrieved together.

        >>> [len(answer.results) for answer in index.search_batch(["a red dog", "two boat"], top=1)]
        [1, 1]
        """
        return self.searcher.search([as_query(query) for query in queries], Options(top, **options))

    def count(self, where: Sequence[Condition] = ()) -> int:
        """How many entries fit.

        >>> index.count([Condition("kind", "=", "picture")])
        3
        """
        return self.store.count(where)

    def __len__(self) -> int:
        return self.store.count()

    # In and out.

    def export(self, path: str | Path) -> int:
        """Write all entries with their vectors to a .npz or .parquet file; how many.

        >>> index.export("vectors.npz")
        3
        """
        from diptych.search.filling.exchange import export

        return export(self.store, Path(path))

    def import_(self, path: str | Path) -> int:
        """Add the entries of a .npz or .parquet file, or of a folder of parts that `diptych embed` wrote; how many.

        >>> index.export("entries.npz")
        3
        >>> copy = Index.create("imported.db", "model")
        >>> copy.import_("entries.npz")
        3
        """
        from diptych.search.filling.exchange import import_
        from diptych.search.filling.import_parts import import_parts
        from diptych.search.filling.parts_folder import PartsFolder, is_parts_folder

        if is_parts_folder(path):
            return import_parts(self.store, PartsFolder(path), self._model.adopt)
        return import_(self.store, Path(path))

    def close(self) -> None:
        """Let go of files and connections.

        >>> Index.open("index.db").close()
        """
        self.store.close()

    def __enter__(self) -> "Index":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
