import threading
from pathlib import Path

import pytest

from diptych.common.errors import DiptychError
from diptych.search.watch import may_matter, watch_roots
from tests.search import tiny

pytest.importorskip("watchfiles", reason="the package watchfiles is not installed")


class Watching:
    """Watches in a thread, as a command does in its own."""

    def __init__(self, roots: list[str], index: str, every: int = 600_000) -> None:
        self.stop = threading.Event()
        self.bursts: list[list[str]] = []
        self.more = threading.Semaphore(0)
        self._roots, self._index, self._every = roots, index, every
        self.thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        for burst in watch_roots(self._roots, self._index, self.stop, every=self._every):
            self.bursts.append(burst)
            self.more.release()

    def next(self) -> list[str]:
        assert self.more.acquire(timeout=30)
        return self.bursts[-1]

    def __enter__(self) -> "Watching":
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        self.thread.join(30)
        assert not self.thread.is_alive()


def touched_until_seen(watching: Watching, path: Path) -> list[str]:
    """Files are written until the first burst comes: when a thread begins to watch cannot be known."""
    for number in range(60):
        (path / f"{number}.png").write_bytes(b"x")
        if watching.more.acquire(timeout=1):
            return watching.bursts[-1]
    raise AssertionError("nothing was seen")


def test_bursts_are_gathered_and_told_with_their_folder(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    with Watching([str(one), str(two)], str(tmp_path / "i.db")) as watching:
        assert touched_until_seen(watching, one) == [str(one)]
        tiny.fill(two, 60)
        while str(two) not in watching.next():
            pass
        (two / "000.png").unlink()
        while watching.next() != [str(two)]:
            pass
    assert len(watching.bursts) < 60  # far fewer than changes


def test_all_folders_are_given_now_and_then_also_those_that_come_back(tmp_path: Path) -> None:
    there, away = tmp_path / "there", tmp_path / "away"
    there.mkdir()
    with Watching([str(there), str(away)], str(tmp_path / "i.db"), every=200) as watching:
        assert watching.next() == [str(there), str(away)]
        away.mkdir()
        assert watching.next() == [str(there), str(away)]


def test_nothing_to_watch(tmp_path: Path) -> None:
    with pytest.raises(DiptychError, match="nothing to watch"):
        next(watch_roots([str(tmp_path / "none")], "i.db"))


@pytest.mark.parametrize(
    ("name", "matters"),
    [
        ("a.png", True),
        ("gone", True),
        ("folder.2024", True),
        ("notes.odt", False),
        ("i.db", False),
        ("i.db-wal", False),
        (".i.db.17.part", False),
        ("i.db.vectors", False),
        ("deeper/i.db.jpg", True),
    ],
)
def test_what_may_matter(name: str, matters: bool, tmp_path: Path) -> None:
    (tmp_path / "folder.2024").mkdir()
    (tmp_path / "notes.odt").write_text("x")
    assert may_matter(str(tmp_path / name), str(tmp_path / "i.db")) is matters
