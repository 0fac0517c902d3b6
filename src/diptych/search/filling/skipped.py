"""Files that are left out: how many of which kind, and what would read them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from diptych.data.pictures import heic_is_read
from diptych.data.raw import raw_is_read
from diptych.data.video import video_is_read
from diptych.search.filling.walk import FileKind, file_kind

MOST_KINDS = 8
_EXTRAS: dict[FileKind, str] = {"heic": "heic", "raw": "raw", "video": "video"}


@dataclass(frozen=True)
class Skipped:
    """Files of one ending that were left out.

    ending: as it is written, in small letters; empty for files without one
    remedy: what would read them; empty where nothing would
    """

    ending: str
    count: int
    remedy: str = ""

    @property
    def lacks_extra(self) -> bool:
        """Whether an extra that is not installed would read them."""
        return self.remedy.startswith("pip ")

    def __str__(self) -> str:
        told = f"{self.count:,} {self.ending or 'without ending'}"
        return f"{told} ({self.remedy})" if self.remedy else told


def can_be_read(kind: FileKind) -> bool:
    """Whether what reads files of this kind is installed."""
    if kind == "heic":
        return heic_is_read()
    if kind == "raw":
        return raw_is_read()
    return kind != "video" or video_is_read()


def skipped_kinds(counts: Mapping[str, int]) -> tuple[Skipped, ...]:
    """What was left out: first what could be read, then the rest, each by how many there are."""
    return _sorted(Skipped(ending, count, _remedy(ending)) for ending, count in counts.items() if count)


def joined_kinds(skipped: Sequence[Skipped]) -> tuple[Skipped, ...]:
    """What several runs left out, as if they were one."""
    kinds: dict[tuple[str, str], int] = {}
    for kind in skipped:
        kinds[kind.ending, kind.remedy] = kinds.get((kind.ending, kind.remedy), 0) + kind.count
    return _sorted(Skipped(ending, count, remedy) for (ending, remedy), count in kinds.items())


def skipped_line(skipped: Sequence[Skipped]) -> str:
    """All of it in a line: `12 skipped: 9 .cr2 (pip install 'diptych[raw]'), 3 .xmp`."""
    total = sum(kind.count for kind in skipped)
    shown = ", ".join(map(str, skipped[:MOST_KINDS]))
    rest = sum(kind.count for kind in skipped[MOST_KINDS:])
    return f"{total:,} skipped: {shown}" + (f" and {rest:,} of other kinds" if rest else "")


def _sorted(kinds: Iterable[Skipped]) -> tuple[Skipped, ...]:
    return tuple(sorted(kinds, key=lambda s: (not s.remedy, -s.count, s.ending)))


def _remedy(ending: str) -> str:
    kind = file_kind(f"a{ending}")
    if kind in _EXTRAS and not can_be_read(kind):
        return f"pip install 'diptych[{_EXTRAS[kind]}]'"
    if kind == "archive":
        return "--archives"
    if kind == "sentences":
        return "--what both"
    return "" if kind is None else "--what pictures"
