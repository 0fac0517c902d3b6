"""A collection through a matcher's two encoders."""

from collections.abc import Callable, Sequence

import torch

from diptych.common.errors import DiptychError
from diptych.common.progress import progress_bar
from diptych.data.batches import check_finite
from diptych.data.collection import Collection, Item
from diptych.matchers.base import Matcher, Pictures
from diptych.matchers.bounded.memory import MemoryBudget, is_out_of_memory, item_bytes, release
from diptych.matchers.kept import Kept


def encode_collection(
    matcher: Matcher, collection: Collection, batch_size: int = 64, near: bool = False, memory: int | None = None
) -> tuple[Kept, Kept]:
    """What is kept of all pictures and of all sentences, in the collection's order.

    near: a side stays on the matcher's GPU where there is room for it; else, and without, both are on the CPU
    memory: bytes that scoring may take there, of which an eighth is for each side; without it, what is free
    """
    texts, _ = collection.captions()
    if not collection.items or not texts:
        raise DiptychError(
            f"expected pictures with sentences, found {len(collection)} and {len(texts)}", where=collection.name
        )
    images = encode_pictures(matcher, collection, batch_size, near, memory)
    return images, encode_sentences(matcher, texts, 4 * batch_size, near, memory)


def encode_pictures(
    matcher: Matcher, collection: Collection, batch_size: int = 64, near: bool = False, memory: int | None = None
) -> Kept:
    """What is kept of all pictures, in the collection's order; near, memory: as in `encode_collection`."""

    def encode(few: slice) -> Kept:
        return matcher.encode_images(pictures_of(matcher, collection, collection.items[few]), batch_size)

    return _encoded("pictures", len(collection), batch_size, encode, near, memory)


def encode_sentences(
    matcher: Matcher, texts: Sequence[str], batch_size: int = 256, near: bool = False, memory: int | None = None
) -> Kept:
    """What is kept of all sentences, in order; near, memory: as in `encode_collection`."""

    def encode(few: slice) -> Kept:
        return matcher.encode_texts(texts[few], batch_size)

    return _encoded("sentences", len(texts), batch_size, encode, near, memory)


def _encoded(
    what: str, count: int, batch_size: int, encode: Callable[[slice], Kept], near: bool, memory: int | None
) -> Kept:
    """Batch by batch, so that a device never holds all of a side that it has no room for."""
    parts: list[Kept] = []
    place = torch.device("cpu")
    with progress_bar() as bar:
        task = bar.add_task(f"encoding {what}", total=count, note="")
        for start in range(0, count, batch_size):
            part = encode(slice(start, start + batch_size))
            place = _place(part, count, memory) if near and not parts else place
            parts.append(part.to(place))
            bar.advance(task, len(part))
    return _joined(parts)


def _place(part: Kept, count: int, memory: int | None) -> torch.device:
    """Where so many items like these are kept: where they are, or else in main memory."""
    fits = item_bytes(part) * count <= MemoryBudget(part.device, memory).side
    return part.device if fits else torch.device("cpu")


def _joined(parts: list[Kept]) -> Kept:
    """All of them, in main memory where a GPU has no room: the first may have been the narrowest."""
    try:
        return type(parts[0]).cat(parts)
    except (RuntimeError, MemoryError) as error:
        device = parts[0].device
        if device.type == "cpu" or not is_out_of_memory(error):
            raise
    parts = [part.to("cpu") for part in parts]
    release(device)
    return type(parts[0]).cat(parts)


def pictures_of(matcher: Matcher, collection: Collection, items: Sequence[Item]) -> Pictures:
    """Local features where the matcher takes them and the collection has them, else the decoded pictures."""
    if collection.features is not None and matcher.takes_features:
        rows = []
        for item in items:
            if item.row is None:
                raise DiptychError(f"picture {item.id} has no features", where=collection.name)
            regions = collection.features[item.row]
            check_finite(regions, f"{collection.name}: picture {item.id}")
            rows.append(regions)
        return rows
    pictures = []
    for item in items:
        if item.open is None:
            wanted = "features" if matcher.takes_features else "a picture file"
            raise DiptychError(
                f"picture {item.id} comes without {wanted}, which this matcher needs", where=collection.name
            )
        pictures.append(item.open)
    return pictures
