"""The ranges of a model's 8-bit form, measured on training pictures and written beside its weights.

    python docs/_make/int8_ranges.py FOLDER DATA [DATA ...]

FOLDER is a saved matcher's; of each DATA (a tar or a folder of training pictures) 64 are taken, spread over it.
"""

import argparse
from pathlib import Path

from diptych.common.errors import DiptychError
from diptych.data.open_picture import open_picture
from diptych.data.read import read_collection
from diptych.encoders.images import PixelEncoder
from diptych.encoders.quick.folded import fold
from diptych.encoders.quick.int8_ranges import measured_ranges, write_ranges
from diptych.matchers.base import Matcher

PICTURES = 64


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("data", nargs="+")
    args = parser.parse_args()
    matcher = Matcher.from_pretrained(args.folder).eval()
    encoder = matcher.image_encoder
    blocks = fold(encoder) if isinstance(encoder, PixelEncoder) else None
    if blocks is None or not isinstance(encoder, PixelEncoder):
        raise DiptychError("has no form in integers: its image encoder is no EfficientNet-Lite", where=args.folder)
    pixels = []
    for data in args.data:
        items = read_collection(data).items
        chosen = [item.open for item in items[:: max(1, len(items) // PICTURES)][:PICTURES]]
        pixels += [encoder.backbone.prepare(open_picture(one)) for one in chosen if one is not None]
    write_ranges(args.folder, encoder, measured_ranges(encoder, blocks, pixels))
    print(f"{args.folder}: the ranges of {len(pixels)} pictures")


if __name__ == "__main__":
    main()
