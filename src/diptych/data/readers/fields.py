"""The names under which people store the same thing."""

from collections.abc import Iterable

FEATURES = ("features", "x", "feat", "feats", "feature", "image_features", "img_features", "region_features", "arr_0")
BOXES = ("boxes", "bbox", "bboxes", "box", "image_bb", "region_boxes")
WIDTHS = ("image_w", "img_w", "width", "image_width")
HEIGHTS = ("image_h", "img_h", "height", "image_height")
IDS = ("ids", "image_ids", "img_ids", "image_id", "img_id", "id", "keys", "names", "filenames", "image_names")
COUNTS = ("num_boxes", "num_regions", "num_bbox", "lengths")
PICTURES = (
    "image", "file_name", "filename", "file", "image_name", "image_path", "img_path", "path", "filepath", "img",
    "picture", "image_file", "key", "image_id", "id", "name",
)  # fmt: skip
CAPTIONS = ("captions", "caption", "sentences", "sentence", "text", "texts", "comment", "raw", "title", "description")
SPLITS = ("split", "partition", "subset")


def pick(keys: Iterable[str], names: tuple[str, ...]) -> str | None:
    """The key whose name, in lower case, comes first in `names`; None where there is none."""
    by_name = {key.strip().lower(): key for key in reversed(list(keys))}
    return next((by_name[name] for name in names if name in by_name), None)


def text_of(caption: object) -> object:
    """The text of a caption that may be an object around it, as in {"raw": text, "sentid": number}."""
    if not isinstance(caption, dict):
        return caption
    return next((caption[key] for key in ("raw", "text", "caption") if key in caption), caption)
