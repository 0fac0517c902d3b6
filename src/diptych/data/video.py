"""Videos: frames where the scene changes, and at least one every few seconds, in bounded number and memory."""

import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from diptych.common.errors import DiptychError
from diptych.data.photo import TAKEN, Columns, camera_name, clean, taken_text

SUFFIXES = frozenset(
    {".3gp", ".avi", ".m2ts", ".m4v", ".mkv", ".mov", ".mp4", ".mpeg", ".mpg", ".mts", ".ogv", ".webm", ".wmv"}
)
# Seconds between two frames at most, while the scene stays; a long video has fewer, so that it has no more than MOST.
EVERY, MOST = 10.0, 200
# Seconds between two frames at least.
LEAST = 0.5
# Key frames that are more seconds apart do not tell what happens between them.
APART = 4.0
# Two frames are of different scenes where their small copies differ by this much of the range, on average.
CHANGE, SMALL = 0.1, 16
# A frame is kept no larger than this while it waits to be embedded; a key is shown from the file itself.
LARGEST = 640
_PLACE = re.compile(r"^([+-]\d{1,2}(?:\.\d+)?)([+-]\d{1,3}(?:\.\d+)?)")
_TURNS = {90: Image.Transpose.ROTATE_90, 180: Image.Transpose.ROTATE_180, 270: Image.Transpose.ROTATE_270}


@dataclass(frozen=True)
class VideoFrame:
    """A frame: its second, and the picture as a JPEG."""

    second: float
    data: bytes


@dataclass(frozen=True)
class FrameOf:
    """Decodes the frame of a video at a second when called."""

    path: Path
    second: float

    def __call__(self) -> Image.Image:
        """The frame as upright RGB; behind the end, the last one."""
        with _opened(self.path) as video:
            last = None
            for second, frame in _frames(video, start=self.second, keys_only=False):
                last = frame
                if second >= self.second - 1e-3:
                    break
            if last is None:
                raise DiptychError(f"there is no frame at second {self.second:g}", where=self.path)
            return _picture(last, None)


def is_video(name: str) -> bool:
    """Whether a file name ends like a video's."""
    return Path(name).suffix.lower() in SUFFIXES


@cache
def video_is_read() -> bool:
    """Whether videos can be read here."""
    return find_spec("av") is not None


def clock(second: float) -> str:
    """A second as players show it.

    >>> clock(42.4), clock(3723)
    ('0:42', '1:02:03')
    """
    minutes, seconds = divmod(int(second), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"


def video_columns(path: Path) -> Columns:
    """What a video says of itself: size, duration, and where they are told time, camera and place."""
    with _opened(path) as video:
        stream = video.streams.video[0]
        width, height = stream.codec_context.width, stream.codec_context.height
        columns: Columns = {"duration": round(_duration(video), 3)}
        for _, frame in _frames(video, keys_only=True):
            width, height = (frame.height, frame.width) if _turn(frame) in (90, 270) else (frame.width, frame.height)
            break
        columns |= {"width": width, "height": height}
        told = {name.lower(): clean(value) for name, value in {**stream.metadata, **video.metadata}.items()}
    taken = _taken(told.get("com.apple.quicktime.creationdate") or told.get("creation_time", ""))
    names = [told.get(f"com.apple.quicktime.{name}") or told.get(name, "") for name in ("make", "model")]
    columns |= {name: text for name, text in ((TAKEN, taken), ("camera", camera_name(*names))) if text}
    place = _PLACE.match(told.get("com.apple.quicktime.location.iso6709") or told.get("location", ""))
    if place and abs(float(place[1])) <= 90 and abs(float(place[2])) <= 180:
        columns |= {"latitude": float(place[1]), "longitude": float(place[2])}
    return columns


def video_frames(path: Path, every: float = EVERY, most: int = MOST) -> Iterator[VideoFrame]:
    """Frames of a video, first to last: where the scene changes, and at least one each `every` seconds; at most `most`.

    Only key frames are decoded, since cameras set one every second or so and encoders one at a cut; where they are
    further apart than `APART`, the frames between them are looked at too. A video so long that it would have more than
    `most` has them further apart.
    """
    with _opened(path) as video:
        long = _duration(video)
        every = max(every, 2 * long / most)
        chooser = _Chooser(every, max(LEAST, long / max(1, most - 1)))
        last = 0.0
        for second, frame in _frames(video, keys_only=True):
            if second - last > APART:
                yield from _between(path, chooser, last, second)
            yield from chooser.look(second, frame)
            last = second
        if long - last > APART:
            yield from _between(path, chooser, last, long)


class _Chooser:
    """Chooses among frames as they come."""

    def __init__(self, every: float, least: float) -> None:
        self.every = every
        self.least = least
        self._last: tuple[float, np.ndarray] | None = None

    def look(self, second: float, frame: Any) -> Iterator[VideoFrame]:
        """The frame, where it is chosen."""
        small = frame.reformat(width=SMALL, height=SMALL, format="rgb24").to_ndarray().astype(np.int16)
        if self._last is not None:
            passed = second - self._last[0]
            changed = float(np.abs(small - self._last[1]).mean()) / 255 > CHANGE
            if passed < self.least or not (changed or passed >= self.every):
                return
        self._last = second, small
        data = io.BytesIO()
        _picture(frame, LARGEST).save(data, "JPEG", quality=92)
        yield VideoFrame(round(second, 3), data.getvalue())


def _between(path: Path, chooser: _Chooser, start: float, end: float) -> Iterator[VideoFrame]:
    """The chosen of all frames between two key frames that lie far apart; about two a second are looked at."""
    with _opened(path) as video:
        last = start
        for second, frame in _frames(video, start=start, keys_only=False):
            if second >= end:
                return
            if second - last >= LEAST:
                yield from chooser.look(second, frame)
                last = second


def _frames(video: Any, start: float = 0.0, *, keys_only: bool) -> Iterator[tuple[float, Any]]:
    """Decoded frames with their seconds, from the key frame before `start` on; what is broken ends it."""
    import av

    stream = video.streams.video[0]
    stream.thread_type = "AUTO"
    stream.codec_context.skip_frame = "NONKEY" if keys_only else "DEFAULT"
    first = (stream.start_time or 0) * stream.time_base
    if start > 0:
        video.seek(int((start + float(first)) / stream.time_base), stream=stream)
    try:
        for frame in video.decode(stream):
            if frame.pts is not None:
                yield max(0.0, float(frame.pts * stream.time_base - first)), frame
    except (av.FFmpegError, ValueError):
        return  # cut off or damaged: what came before it is what there is


def _picture(frame: Any, largest: int | None) -> Image.Image:
    """A frame as upright RGB, its longer side at most `largest`."""
    width, height = frame.width, frame.height
    if largest is not None and max(width, height) > largest:
        scale = largest / max(width, height)
        width, height = max(2, round(width * scale) // 2 * 2), max(2, round(height * scale) // 2 * 2)
    image = Image.fromarray(frame.reformat(width=width, height=height, format="rgb24").to_ndarray())
    turn = _TURNS.get(_turn(frame))
    return image if turn is None else image.transpose(turn)


def _turn(frame: Any) -> int:
    """How far a frame is turned to the left to be upright, in degrees."""
    return int(getattr(frame, "rotation", 0) or 0) % 360


def _duration(video: Any) -> float:
    stream = video.streams.video[0]
    if stream.duration is not None:
        return float(stream.duration * stream.time_base)
    return float(video.duration or 0) / 1_000_000


def _taken(text: str) -> str | None:
    """A container's moment by the clock of this machine's zone, unless it names its own."""
    try:
        moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return None
    if moment.tzinfo is None or moment.utcoffset() == UTC.utcoffset(None):
        moment = moment.replace(tzinfo=UTC).astimezone()
    return taken_text(moment)


def _opened(path: Path) -> Any:
    if not video_is_read():
        raise DiptychError("a video; to read it, install diptych[video]", where=path)
    if not path.is_file():
        raise DiptychError("not a plain file" if path.exists() else "no such video", where=path)
    import av

    try:
        video = av.open(str(path), metadata_errors="replace")
    except (av.FFmpegError, ValueError, OSError) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise DiptychError(f"the video cannot be read: {reason}", where=path) from None
    if not video.streams.video:
        video.close()
        raise DiptychError("holds no pictures", where=path)
    return video
