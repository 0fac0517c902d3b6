"""The plan of a bulk embedding: which items make up which part, written down before anything is embedded."""

import glob
import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from diptych.common.errors import DiptychError
from diptych.data.collection import DataProblem
from diptych.data.readers.json_value import read_json
from diptych.search.filling.entry_table import arrow
from diptych.search.filling.parts_folder import PartsFolder
from diptych.search.filling.remote import again, filesystem, is_url, list_url, plain_place
from diptych.search.filling.skipped import can_be_read
from diptych.search.filling.walk import PICTURES, Choice, FoundFile, ending_of, roots_of, walk
from diptych.search.models.fingerprint import Fingerprint

PLAN = "plan.json"
FORMAT = 1
# Items of a part, where nobody says.
USUAL_PART = 4096


@dataclass(frozen=True)
class PlanPart:
    """What one parquet file will hold: pictures, or one file of several entries, or a stretch of its rows.

    rows: of a parquet file, the first row and the one after the last
    """

    number: int
    files: tuple[FoundFile, ...]
    rows: tuple[int, int] | None = None

    @property
    def name(self) -> str:
        """Its file."""
        return f"part-{self.number:05d}.parquet"

    @property
    def bad(self) -> str:
        """The file that lists what of it could not be read, where there is any."""
        return f"bad-{self.number:05d}.jsonl"

    @property
    def items(self) -> int | None:
        """How many items it has; None where that shows only when it is read."""
        if self.rows is not None:
            return self.rows[1] - self.rows[0]
        return len(self.files) if self.files[0].kind in PICTURES else None

    def to_json(self) -> dict[str, Any]:
        """As the plan keeps it."""
        files = [[f.path, f.kind, f.size, f.changed] for f in self.files]
        return {"files": files} | ({} if self.rows is None else {"rows": list(self.rows)})

    @classmethod
    def read(cls, number: int, told: dict[str, Any]) -> "PlanPart":
        """As `to_json` wrote it."""
        files = tuple(FoundFile(*file) for file in told["files"])
        return cls(number, files, tuple(told["rows"]) if "rows" in told else None)


@dataclass(frozen=True)
class EmbedPlan:
    """What is embedded with what, and how it is cut.

    id: says of a part that it is of this plan
    options: what was asked for besides; all of it changes what the parts hold
    """

    id: str
    model: Fingerprint
    options: dict[str, Any]
    parts: tuple[PlanPart, ...] = ()

    @property
    def what(self) -> Any:
        """Pictures, sentences or both."""
        return self.options["what"]

    def write(self, folder: PartsFolder) -> None:
        """Write it down."""
        told = {
            "format": FORMAT,
            "id": self.id,
            "model": asdict(self.model),
            "options": self.options,
            "parts": [part.to_json() for part in self.parts],
        }
        with folder.writing(PLAN) as aside:
            aside.write_text(json.dumps(told, ensure_ascii=False), encoding="utf-8")

    def check(self, model: str, options: dict[str, Any], parts: Sequence[PlanPart], where: str) -> None:
        """See that the same is asked for again; one sentence says what is not."""
        elsewhere = "embed into another folder"
        if model != self.model.name:
            raise DiptychError(f"begun with the model {self.model.name!r}, not {model!r}; {elsewhere}", where=where)
        for name, value in options.items():
            if self.options.get(name) != value:
                was, now = (json.dumps(told, ensure_ascii=False) for told in (self.options.get(name), value))
                raise DiptychError(f"begun with {name} {was}, not {now}; {elsewhere}", where=where)
        if tuple(parts) != self.parts:
            raise DiptychError(f"the source has changed since it was begun: {self._changes(parts)}; {elsewhere}", where)

    def _changes(self, parts: Sequence[PlanPart]) -> str:
        was, now = ({f.path: f for part in some for f in part.files} for some in (self.parts, parts))
        counts = {
            "new": len(now.keys() - was.keys()),
            "gone": len(was.keys() - now.keys()),
            "changed": sum(was[path] != now[path] for path in was.keys() & now.keys()),
        }
        told = [f"{count:,} {name}" for name, count in counts.items() if count]
        return f"files {', '.join(told)}" if told else "the files are cut otherwise"


@dataclass
class Listing:
    """What a source holds.

    problems: folders and names that cannot be read; skipped: files of other kinds, by their ending
    """

    files: list[FoundFile] = field(default_factory=list)
    problems: list[DataProblem] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)


def list_sources(sources: Sequence[str | Path], choice: Choice, out: PartsFolder) -> Listing:
    """The wanted files of folders, files, patterns and URLs, always in the same order, each once."""
    listing = Listing()
    places = [plain_place(source) for source in sources]
    local = [path for place in places if not is_url(place) for path in _matching(place)]
    for root in roots_of(local) if local else []:
        for file in walk(root, choice, listing.problems, [], listing.skipped):
            if out.holds(file.path):
                continue
            if can_be_read(file.kind):
                listing.files.append(file)
            else:
                listing.skipped[ending_of(file.path)] += 1
    for url in sorted({place for place in places if is_url(place)}):
        listing.files += [file for file in list_url(url, choice, listing.skipped) if not out.holds(file.path)]
    listing.files = list({file.path: file for file in listing.files}.values())
    return listing


def cut_into_parts(files: Sequence[FoundFile], size: int) -> tuple[PlanPart, ...]:
    """Parts of `size` pictures; a tar, video or text is a part of its own, a parquet file one for `size` rows each."""
    parts: list[PlanPart] = []
    waiting: list[FoundFile] = []

    def close() -> None:
        if waiting:
            parts.append(PlanPart(len(parts), tuple(waiting)))
            waiting.clear()

    for file in files:
        if file.kind in PICTURES:
            waiting.append(file)
            if len(waiting) == size:
                close()
            continue
        close()
        if not file.path.lower().endswith(".parquet"):
            parts.append(PlanPart(len(parts), (file,)))
            continue
        count = _rows(file.path)
        starts = range(0, count, size) if count else [0]
        parts += [PlanPart(len(parts) + i, (file,), (a, min(a + size, count))) for i, a in enumerate(starts)]
    close()
    return tuple(parts)


def new_plan(model: Fingerprint, options: dict[str, Any], parts: Sequence[PlanPart]) -> EmbedPlan:
    """A plan with an id that no other has."""
    told = json.dumps([asdict(model), options, [part.to_json() for part in parts]], ensure_ascii=False)
    return EmbedPlan(hashlib.blake2b(told.encode(), digest_size=8).hexdigest(), model, options, tuple(parts))


def read_plan(folder: PartsFolder) -> EmbedPlan | None:
    """The plan of a folder; None where there is none."""
    if PLAN not in folder.names():
        return None
    where = f"{folder.address}/{PLAN}"
    try:
        with folder.reading(PLAN) as path:
            told = read_json(path.read_text(encoding="utf-8"))
        if told["format"] != FORMAT:
            raise DiptychError(f"a plan of format {told['format']}, expected {FORMAT}", where=where)
        parts = tuple(PlanPart.read(number, part) for number, part in enumerate(told["parts"]))
        return EmbedPlan(told["id"], Fingerprint.read(told["model"]), told["options"], parts)
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise DiptychError(f"cannot be read as a plan: {error}", where=where) from None


def _matching(place: str) -> Iterator[str]:
    """A path itself, or what a pattern fits."""
    path = os.path.expanduser(place)
    if os.path.exists(path) or not glob.has_magic(path):
        yield path
        return
    found = sorted(glob.glob(path, recursive=True))
    if not found:
        raise DiptychError("fits no file or folder", where=place)
    yield from found


def _rows(path: str) -> int:
    """How many rows a parquet file has; one that is none is a part, and is told there."""
    pyarrow, parquet = arrow(Path(path))

    def ask() -> int:
        try:
            if not is_url(path):
                return int(parquet.read_metadata(path).num_rows)
            fs, place = filesystem(path)
            with fs.open(place, "rb") as file:
                return int(parquet.read_metadata(file).num_rows)
        except pyarrow.ArrowException:
            return 0

    if is_url(path):
        return again(ask, path)
    try:
        return ask()
    except OSError:
        return 0
