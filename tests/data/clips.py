"""Small videos of plain colours, one scene after another."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

Colour = tuple[int, int, int]
RED, GREEN, BLUE = (200, 30, 30), (30, 200, 30), (30, 30, 200)


def write_clip(
    path: Path, scenes: Sequence[tuple[Colour, float]], keys: int | None = None, told: dict[str, str] | None = None
) -> Path:
    """A video of scenes, each a colour and its seconds; keys: frames between two key frames, whatever is seen."""
    import av

    with av.open(str(path), "w", options={"movflags": "use_metadata_tags"}) as out:
        out.metadata.update(told or {})
        stream = out.add_stream("libx264", rate=10)
        stream.width, stream.height, stream.pix_fmt = 96, 64, "yuv420p"
        stream.options = {"preset": "ultrafast"} | ({} if keys is None else {"g": str(keys), "sc_threshold": "0"})
        for colour, seconds in scenes:
            for place in range(round(seconds * 10)):
                pixels = np.full((64, 96, 3), colour, np.uint8)
                pixels[8:16, place % 80 : place % 80 + 8] = 255
                for packet in stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")):
                    out.mux(packet)
        for packet in stream.encode():
            out.mux(packet)
    return path
