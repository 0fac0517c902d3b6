"""What is wrong with the data: the first problem stops the reading, or all are written down and skipped."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from diptych.common.errors import DiptychError
from diptych.data.collection import DataProblem, Item, Sentence


class Faults:
    """Raises at the first problem, or with `go_on` collects them all."""

    def __init__(self, go_on: bool = False) -> None:
        self.go_on = go_on
        self.problems: list[DataProblem] = []

    def tell(self, where: str, what: str) -> None:
        """One problem: `where` names file and field, `what` says what was found and expected."""
        if not self.go_on:
            raise DiptychError(what, where=where)
        self.problems.append(DataProblem(where, what))

    @contextmanager
    def guard(self, path: Path | str) -> Iterator[None]:
        """Go on after an error that makes the whole of `path` unreadable, where going on is wished."""
        try:
            yield
        except DiptychError as error:
            if not self.go_on:
                raise
            self.problems.append(DataProblem(error.where or str(path), error.what))


class Gathering:
    """Items as a reader finds them: an id twice, in two splits, or without captions is told with its place."""

    def __init__(self, faults: Faults, captioned: bool = True) -> None:
        self.faults = faults
        self.captioned = captioned
        self.items: list[Item] = []
        self._seen: dict[str, tuple[str, str]] = {}
        self._seen_in_testall: dict[str, tuple[str, str]] = {}

    def add(self, item: Item, where: str) -> bool:
        """Keep an item unless something is wrong with it; `where` is its place in the source."""
        if not item.id:
            self.faults.tell(where, "the id is empty")
            return False
        if not self._is_new(item, where):
            return False
        if self.captioned and not item.sentences:
            self.faults.tell(where, f"the picture {item.id!r} has no captions")
            return False
        self.items.append(item)
        return True

    def _is_new(self, item: Item, where: str) -> bool:
        # COCO's `test` is by custom the first thousand pictures of `testall`.
        own, other = self._seen, self._seen_in_testall
        if item.split == "testall":
            own, other = other, own
        before = own.get(item.id)
        if before is None and item.id in other and {item.split, other[item.id][0]} != {"test", "testall"}:
            before = other[item.id]
        if before is None:
            own[item.id] = (item.split, where)
            return True
        split, place = before
        if split != item.split:
            self.faults.tell(where, f"the id {item.id!r} is in two splits: {item.split!r} here, {split!r} at {place}")
        else:
            self.faults.tell(where, f"the id {item.id!r} is there twice: first at {place}")
        return False


def caption(text: object, id: str, where: str, faults: Faults) -> Sentence | None:
    """A sentence with its white space evened out, or None (and a problem) where the text is empty or no string."""
    if not isinstance(text, str):
        faults.tell(where, f"expected a caption, got {text!r}")
        return None
    even = " ".join(text.split())
    if not even:
        faults.tell(where, "the caption is empty")
        return None
    return Sentence(even, id)
