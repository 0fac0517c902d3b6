"""What bound tells copies of a picture from other pictures: the figures of docs/searching.md on near duplicates.

    python docs/_make/near_duplicates.py DATA                       # the validation split, with the model that ships
    python docs/_make/near_duplicates.py DATA --split test --model runs/mine --copies 150 --pictures 1000

For each bound: how many pictures have another one as near, and of copies that were changed, how many are still found.
"""

import argparse
import io
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image, ImageEnhance, ImageOps

from diptych.common.errors import DiptychError
from diptych.data.read import read_collection
from diptych.search.asking.duplicates import closeness
from diptych.search.models.embedder import load_embedder

BOUNDS = (0.8, 0.82, 0.84, 0.86, 0.88, 0.9, 0.92, 0.95)


def as_jpeg(image: Image.Image, quality: int) -> Image.Image:
    """Saved and read again."""
    file = io.BytesIO()
    image.save(file, "JPEG", quality=quality)
    return Image.open(io.BytesIO(file.getvalue())).convert("RGB")


def cut(image: Image.Image, share: float) -> Image.Image:
    """Without this share of each side."""
    x, y = round(image.width * share), round(image.height * share)
    return image.crop((x, y, image.width - x, image.height - y))


def at_half(image: Image.Image) -> Image.Image:
    """Half as wide and as high."""
    return image.resize((image.width // 2, image.height // 2), Image.Resampling.LANCZOS)


COPIES: dict[str, Callable[[Image.Image], Image.Image]] = {
    "JPEG, quality 75": lambda image: as_jpeg(image, 75),
    "JPEG, quality 50": lambda image: as_jpeg(image, 50),
    "JPEG, quality 30": lambda image: as_jpeg(image, 30),
    "at half size": at_half,
    "a twentieth cut off each side": lambda image: cut(image, 0.05),
    "a tenth cut off each side": lambda image: cut(image, 0.1),
    "mirrored": ImageOps.mirror,
    "brighter by 30 %": lambda image: ImageEnhance.Brightness(image).enhance(1.3),
    "darker by 30 %": lambda image: ImageEnhance.Brightness(image).enhance(0.7),
    "turned by three degrees": lambda image: image.rotate(3, resample=Image.Resampling.BICUBIC),
    "black and white": lambda image: ImageOps.grayscale(image).convert("RGB"),
}


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="anything that `diptych data` reads")
    parser.add_argument("--split", default="val")
    parser.add_argument("--model", default="default")
    parser.add_argument("--pictures", type=int, default=1500, help="drawn, to be compared with each other")
    parser.add_argument("--copies", type=int, default=100, help="of them are changed")
    given = parser.parse_args()
    try:
        embedder = load_embedder(given.model)
        items = read_collection(given.data).split(given.split).items
    except DiptychError as error:
        sys.exit(f"error: {error}")
    opens = [item.open for item in items if item.open is not None]
    drawn = [opens[i] for i in np.random.default_rng(3).permutation(len(opens))[: given.pictures]]
    vectors = embedder.embed_pictures(drawn)
    nearest = np.array([np.delete(closeness(own, vectors), row).max() for row, own in enumerate(vectors)])
    print("| | " + " | ".join(f"{bound:g}" for bound in BOUNDS) + " |\n" + "|---" * (len(BOUNDS) + 1) + "|")
    others = " | ".join(str(int((nearest >= bound).sum())) for bound in BOUNDS)
    print(f"| of {len(drawn):,} pictures, so many have another as near | {others} |")
    originals = [picture().convert("RGB") for picture in drawn[: given.copies]]
    for name, change in COPIES.items():
        copies = embedder.embed_pictures([change(image) for image in originals])
        close = np.array([closeness(copy, own[None])[0] for copy, own in zip(copies, vectors, strict=False)])
        print(f"| {name} | " + " | ".join(f"{100 * np.mean(close >= bound):.0f} %" for bound in BOUNDS) + " |")


if __name__ == "__main__":
    main()
