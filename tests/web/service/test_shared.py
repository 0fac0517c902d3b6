"""What several processes share: uploads in a folder, and one writer at a time."""

import threading
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from diptych.web.errors import NotFound
from diptych.web.service.shared import OneWriter
from diptych.web.service.shared_uploads import SharedUploads
from tests.encoders.pictures import picture


def test_an_upload_is_the_same_for_another_process(tmp_path: Path) -> None:
    sent = picture(30, 20)
    id = SharedUploads(tmp_path).keep(sent)
    assert np.array_equal(np.asarray(SharedUploads(tmp_path).get(id)), np.asarray(sent.convert("RGB")))
    large = SharedUploads(tmp_path).keep(Image.new("L", (3000, 1000)))
    assert SharedUploads(tmp_path).get(large).size == (1024, 341)
    for none in ("upload-none", "upload-", "upload-../other", "upload-/etc/passwd", "upload-\x00"):
        with pytest.raises(NotFound, match="no such upload"):
            SharedUploads(tmp_path).get(none)


def test_those_used_last_stay(tmp_path: Path) -> None:
    one, other = SharedUploads(tmp_path, most=2), SharedUploads(tmp_path, most=2)
    first, second = one.keep(picture(9, 9)), other.keep(picture(8, 8))
    one.get(first)
    third = other.keep(picture(7, 7))
    assert len(one) == 2
    assert [one.get(id).width for id in (first, third)] == [9, 7]
    with pytest.raises(NotFound):
        other.get(second)
    small = SharedUploads(tmp_path, most_bytes=10)
    last = small.keep(picture(6, 6))  # one is kept however large it is
    assert (len(small), small.get(last).width) == (1, 6)


def test_one_writes_at_a_time_and_all_count_together(tmp_path: Path) -> None:
    one, other = OneWriter(tmp_path), OneWriter(tmp_path)
    with one.alone():
        waiting = threading.Thread(target=lambda: other.alone().__enter__())
        waiting.start()
        waiting.join(0.2)
        assert waiting.is_alive()
        assert one.noted(3) == 3
    waiting.join(30)
    assert not waiting.is_alive()
    assert other.noted(4) == 7
    assert not one.others_prepared()
    other.prepared()
    assert (one.others_prepared(), other.others_prepared()) == (True, False)
    assert (one.others_prepared(), one.noted(1)) == (False, 1)


def test_one_process_counts_for_itself() -> None:
    writer = OneWriter()
    with writer.alone():
        assert [writer.noted(2), writer.noted(1)] == [2, 3]
    writer.prepared()
    assert (writer.others_prepared(), writer.noted(1)) == (False, 1)
