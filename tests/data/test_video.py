"""Frames of videos that are made here."""

import io
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from diptych.common.errors import DiptychError
from diptych.data import video
from diptych.data.video import FrameOf, clock, is_video, video_columns, video_frames
from tests.data.clips import BLUE, GREEN, RED, write_clip

pytest.importorskip("av", reason="videos need diptych[video]")


def colour(image: Image.Image) -> tuple[int, ...]:
    return tuple(np.asarray(image)[30:].mean((0, 1)).round(-1).astype(int).tolist())


def chosen(path: Path, **options: float) -> list[tuple[float, tuple[int, ...]]]:
    frames = video_frames(path, **options)  # type: ignore[arg-type]
    return [(frame.second, colour(Image.open(io.BytesIO(frame.data)))) for frame in frames]


THREE = [(RED, 4.0), (GREEN, 2.5), (BLUE, 5.5)]


@pytest.mark.parametrize("keys", [None, 500, 10, 1], ids=["at cuts", "one", "each second", "all"])
def test_there_is_a_frame_of_each_scene(tmp_path: Path, keys: int | None) -> None:
    path = write_clip(tmp_path / "a.mp4", THREE, keys)
    found = chosen(path)
    assert [c for _, c in found] == [RED, GREEN, BLUE]
    # A cut is found at the next key frame, where these are not too far apart.
    for (second, _), cut in zip(found, (0.0, 4.0, 6.5), strict=True):
        assert cut - 1e-6 <= second <= cut + (1.0 if keys == 10 else 0.5)


@pytest.mark.parametrize("keys", [1000, 10])
def test_a_scene_that_stays_has_a_frame_every_few_seconds(tmp_path: Path, keys: int) -> None:
    path = write_clip(tmp_path / "a.mp4", [(RED, 33.0)], keys)
    assert [second for second, _ in chosen(path)] == [0.0, 10.0, 20.0, 30.0]
    assert [second for second, _ in chosen(path, every=15.0)] == [0.0, 15.0, 30.0]


@pytest.mark.parametrize("most", [3, 7, 12])
def test_a_video_has_no_more_frames_than_are_allowed(tmp_path: Path, most: int) -> None:
    path = write_clip(tmp_path / "a.mp4", [(c, 1.0) for c in (RED, GREEN, BLUE) * 6], keys=5)
    found = chosen(path, most=most)
    assert most // 2 <= len(found) <= most
    assert found[-1][0] > 6  # and they are spread over it


def test_a_frame_is_found_again_by_its_second(tmp_path: Path) -> None:
    path = write_clip(tmp_path / "a.mp4", THREE, keys=500)
    for second, seen in chosen(path):
        assert colour(FrameOf(path, second)()) == seen
    assert colour(FrameOf(path, 5.0)()) == GREEN
    assert colour(FrameOf(path, 900.0)()) == BLUE  # behind the end: the last one


def test_what_a_video_says_of_itself(tmp_path: Path) -> None:
    told = {
        "com.apple.quicktime.make": "Apple",
        "com.apple.quicktime.model": "iPhone 15",
        "com.apple.quicktime.location.ISO6709": "+47.3769+008.5417+408.0/",
        "com.apple.quicktime.creationdate": "2019-07-04T12:30:00+0200",
    }
    path = write_clip(tmp_path / "a.mov", [(RED, 2.0)], told=told)
    assert video_columns(path) == {
        "duration": 2.0, "width": 96, "height": 64, "taken": "2019-07-04T12:30:00", "camera": "Apple iPhone 15",
        "latitude": 47.3769, "longitude": 8.5417,
    }  # fmt: skip


def test_a_moment_of_universal_time_is_by_this_machines_clock(tmp_path: Path) -> None:
    path = write_clip(tmp_path / "a.mp4", [(RED, 1.0)], told={"creation_time": "2019-07-04T10:30:00.000000Z"})
    here = datetime.fromisoformat("2019-07-04T10:30:00+00:00").astimezone()
    assert video_columns(path)["taken"] == here.strftime("%Y-%m-%dT%H:%M:%S")


def test_a_video_that_is_cut_off_gives_what_there_is(tmp_path: Path) -> None:
    whole = write_clip(tmp_path / "a.mkv", THREE, keys=10).read_bytes()
    (tmp_path / "cut.mkv").write_bytes(whole[: len(whole) * 2 // 3])
    found = chosen(tmp_path / "cut.mkv")
    assert found[0] == (0.0, RED)
    assert found[-1][0] < 12


@pytest.mark.parametrize("content", [b"", b"no video at all", b"\0\0\0\x18ftypmp42" + bytes(60)])
def test_what_is_no_video_is_said(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.mp4").write_bytes(content)
    with pytest.raises(DiptychError, match=r"a\.mp4: "):
        list(video_frames(tmp_path / "a.mp4"))
    with pytest.raises(DiptychError, match="no such video"):
        FrameOf(tmp_path / "b.mp4", 0.0)()


def test_without_the_package_it_says_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_clip(tmp_path / "a.mp4", [(RED, 1.0)])
    monkeypatch.setattr(video, "video_is_read", lambda: False)
    with pytest.raises(DiptychError, match=r"install diptych\[video\]"):
        video_columns(path)


def test_seconds_as_players_show_them() -> None:
    assert [clock(s) for s in (0, 9.9, 42, 60, 3599, 3600, 45296)] == [
        "0:00", "0:09", "0:42", "1:00", "59:59", "1:00:00", "12:34:56",
    ]  # fmt: skip
    assert is_video("a/b.MP4")
    assert not is_video("mp4")
