"""A video as entries: some of its frames, each called FILE#SECOND."""

from collections.abc import Iterator
from pathlib import Path

from diptych.common.errors import DiptychError
from diptych.data.collection import DataProblem
from diptych.data.pictures import PictureBytes
from diptych.data.video import video_columns, video_frames
from diptych.search.filling.new_entry import NewEntry
from diptych.search.filling.walk import FoundFile
from diptych.search.stores.keys import SECOND, frame_key
from diptych.search.stores.store import Stamp


def video_parts(file: FoundFile) -> Iterator[NewEntry | DataProblem]:
    """The frames of a video that are indexed, with what the video says of itself and their seconds."""
    path = Path(file.path)
    try:
        columns = video_columns(path) | {"bytes": file.size}
        count = 0
        for frame in video_frames(path):
            key = frame_key(file.path, frame.second)
            source = PictureBytes(frame.data, f"{file.path}: second {frame.second:g}")
            facts = {**columns, SECOND: frame.second}
            yield NewEntry(key, "picture", Stamp(key, file.size, file.changed, ""), source, facts=facts)
            count += 1
    except DiptychError as error:
        yield DataProblem(file.path, error.within(file.path))
        return
    if not count:
        yield DataProblem(file.path, "the video holds no frame that can be decoded")
