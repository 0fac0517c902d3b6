"""However many threads decode, so many pixels are there at once."""

import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from diptych.data.open_picture import open_picture
from diptych.data.pictures import DECODED, MOST_PIXELS_VARIABLE
from diptych.data.pixel_budget import PixelBudget
from diptych.search.filling.new_entry import picture_of
from diptych.search.filling.pipeline import embed_entries
from diptych.search.filling.walk import FoundFile
from diptych.search.models.embedder import Embedder, load_embedder
from tests.search.conftest import own_folders, vse_folder
from tests.search.tiny import fill

__all__ = ["own_folders", "vse_folder"]
SIDE = 40 * 30


def most_at_once(work: Callable[[], None], count: int = 8) -> None:
    threads = [threading.Thread(target=work) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)


@pytest.mark.parametrize(("pixels", "expected"), [(10, 3), (15, 2), (30, 1), (100, 1)])
def test_so_many_are_held_at_once_and_one_that_is_too_large_alone(pixels: int, expected: int) -> None:
    budget, lock, held, most = PixelBudget(lambda: 30), threading.Lock(), 0, 0

    def work() -> None:
        nonlocal held, most
        for _ in range(5):
            with budget.holding():
                with budget.decoding(pixels):
                    pass
                with lock:
                    held += 1
                    most = max(most, held)
                time.sleep(0.001)  # so that the others would come
                with lock:
                    held -= 1

    most_at_once(work)
    assert most == expected
    assert budget.taken == 0


def test_a_thread_that_has_room_does_not_wait_for_more() -> None:
    """Two that hold one each and wait for a second would wait for each other."""
    budget, both = PixelBudget(lambda: 20), threading.Barrier(2)

    def work() -> None:
        with budget.holding(), budget.decoding(10):
            both.wait(30)
            with budget.decoding(15):
                pass

    most_at_once(work, 2)
    assert budget.taken == 0


def test_a_large_one_that_waits_is_not_passed_by() -> None:
    budget, order = PixelBudget(lambda: 20), list[str]()

    def take(name: str, pixels: int) -> threading.Thread:
        def work() -> None:
            with budget.decoding(pixels):
                order.append(name)

        thread = threading.Thread(target=work)
        thread.start()
        return thread

    with budget.decoding(10):
        threads = [take("large", 20)]
        while not budget._waiting:
            time.sleep(0.001)
        threads.append(take("small", 5))
        while len(budget._waiting) < 2:
            time.sleep(0.001)
        assert order == []
    for thread in threads:
        thread.join(30)
    assert order == ["large", "small"]


def test_room_comes_back_after_a_picture_that_is_broken(tmp_path: Path) -> None:
    whole = fill(tmp_path, 1) / "000.png"
    whole.write_bytes(whole.read_bytes()[:-200])
    with pytest.raises(Exception, match="cannot be decoded"):
        open_picture(whole)
    assert DECODED.taken == 0


def test_indexing_with_many_threads_stays_within_the_limit(
    tmp_path: Path, vse_folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pictures count until they are as small as the model takes them."""
    monkeypatch.setenv(MOST_PIXELS_VARIABLE, str(2 * SIDE))
    embedder, lock, held, most = load_embedder(vse_folder, "cpu"), threading.Lock(), 0, 0

    class Counting(Embedder):
        def prepare(self, image: Image.Image) -> np.ndarray:
            nonlocal held, most
            with lock:
                held += image.width * image.height
                most = max(most, held)
            time.sleep(0.005)  # so that the others would come
            with lock:
                held -= image.width * image.height
            return super().prepare(image)

    embedder.__class__ = Counting
    files = sorted(fill(tmp_path / "pictures", 24).iterdir())
    given = [picture_of(FoundFile(str(p), "picture", p.stat().st_size, p.stat().st_mtime_ns)) for p in files]
    outcomes = [o for some in embed_entries(given, embedder, batch_size=2, workers=8) for o in some]
    assert len(outcomes) == 24
    assert SIDE < most <= 2 * SIDE
    assert DECODED.taken == 0
