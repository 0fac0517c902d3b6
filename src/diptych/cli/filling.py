"""An index brought in step, once or for as long as one watches: what `diptych index` does, apart from what it says."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from diptych.common.errors import DiptychError

if TYPE_CHECKING:
    from diptych.search.filling.roots import Root
    from diptych.search.filling.sync import Embed, SyncReport
    from diptych.search.in_step import Effort
    from diptych.search.index import Index


@dataclass(frozen=True)
class Wanted:
    """What the command line says.

    paths: folders and files; none for all that the index was ever filled from
    what, exclude, hidden, archives, metadata: which of their files, and columns for them
    given: the names of those that were said, which go before what is remembered of a folder
    """

    paths: tuple[Path, ...] = ()
    what: Any = "pictures"
    exclude: tuple[str, ...] = ()
    hidden: bool = False
    archives: bool = False
    metadata: Path | None = None
    given: frozenset[str] = field(default_factory=frozenset)

    def over(self, root: "Root") -> "Root":
        """What is wanted of a remembered root now."""
        names = self.given & {"what", "exclude", "hidden", "archives"}
        choice = replace(root.choice, **{name: getattr(self, name) for name in names})
        table = str(self.metadata.expanduser().absolute()) if self.metadata is not None else root.metadata
        return replace(root, choice=choice, metadata=table if "metadata" in self.given else root.metadata)


def bring_in_step(opened: "Index", wanted: Wanted, effort: "Effort", only: Sequence[str] | None = None) -> "SyncReport":
    """One run; `only` the roots of these paths, where it is given."""
    from diptych.search.in_step import sync_all

    if not wanted.paths:
        return sync_all(opened, effort, wanted=wanted.over, only=only)
    paths = wanted.paths if only is None else tuple(path for path in wanted.paths if _absolute(path) in only)
    return opened.sync(
        *paths,
        what=wanted.what,
        exclude=wanted.exclude,
        hidden=wanted.hidden,
        archives=wanted.archives,
        metadata=wanted.metadata,
        batch_size=effort.batch_size,
        workers=effort.workers,
        embed=effort.embed,
        delete=effort.delete,
        retry=effort.retry,
        text_in_pictures=effort.text_in_pictures,
    )


def keep_in_step(
    opened: "Index", wanted: Wanted, effort: "Effort", told: Callable[["SyncReport | DiptychError"], None]
) -> None:
    """A run for each burst of changes, until it is interrupted. The model, once loaded, stays.

    What goes wrong with one run is told, and the next one may do better; without its index there is no next one.
    """
    from diptych.search.stores.store import StoreReplaced
    from diptych.search.watch import watch_roots

    effort = replace(effort, retry=False)
    roots = [_absolute(path) for path in wanted.paths] or list(opened.roots)
    for changed in watch_roots(roots, opened.store.address):
        there = [root for root in changed if not wanted.paths or Path(root).exists()]
        try:
            if there:
                told(bring_in_step(opened, wanted, effort, there))
        except StoreReplaced:
            raise
        except DiptychError as error:
            told(error)


@contextmanager
def embedding_together(opened: "Index", effort: "Effort") -> Iterator["Effort"]:
    """Under torchrun all processes embed; else nothing is different."""
    from diptych.search.filling import bulk

    if bulk.world_size() == 1:
        yield effort
        return
    with bulk.together():
        sizes = {"batch_size": effort.batch_size, "workers": effort.workers}
        settings = {"model": opened.model, "locals": opened.kept_locals, **sizes}
        yield replace(effort, embed=bulk.hand_out(opened.local_embed(**sizes), settings))


def take_part(device: str) -> None:
    """The part of a process that only embeds."""
    from diptych.search.filling import bulk

    def load(settings: dict[str, Any]) -> "Embed":
        from functools import partial

        from diptych.search.filling.pipeline import LocalsKeeper, embed_entries
        from diptych.search.models.embedder import load_embedder

        embedder = load_embedder(settings["model"], device)
        keeper = None if settings["locals"] is None else LocalsKeeper(settings["locals"], embedder)
        sizes = {name: settings[name] for name in ("batch_size", "workers")}
        return partial(embed_entries, embedder=embedder, keeper=keeper, **sizes)

    with bulk.together():
        bulk.take_part(load)


def _absolute(path: Path) -> str:
    return str(path.expanduser().absolute())
