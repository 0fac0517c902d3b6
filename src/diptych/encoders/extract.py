"""Pictures to a feature file: decoding beside the model, resumable, with every bad picture listed."""

import hashlib
from collections.abc import Sequence
from contextlib import closing
from typing import Literal

import numpy as np
import torch
from torch import nn

import diptych
from diptych.common.errors import DiptychError
from diptych.common.progress import progress_bar
from diptych.common.read_ahead import check_sizes, read_ahead
from diptych.data.collection import DataProblem, Item, Regions
from diptych.data.feature_file import FeatureSource
from diptych.data.feature_writer import FeatureWriter
from diptych.data.open_picture import open_with_size
from diptych.data.pictures import DECODED
from diptych.encoders.backbones import Extractor, Size, load_backbone

Precision = Literal["half", "single"]
_DTYPES = {"half": torch.float16, "single": torch.float32}


def load_extractor(name: str, size: int | None = None, regions: int | None = None) -> Extractor:
    """A backbone or a detector by name, in eval mode; which of the two it is, its own configuration says.

    size: as the backbone or detector takes it, its own where None
    regions: most regions of a picture; of a detector only

    >>> extractor = load_extractor("vit", size=32)  # a folder, a name of the hub, or `efficientnet-lite0`
    >>> extractor.regions([Image.open("dog.png")])[0].vectors.shape
    (16, 12)
    """
    from diptych.encoders.detectors import load_detector
    from diptych.encoders.efficientnet import NAMES
    from diptych.encoders.huggingface_vision import is_detector
    from diptych.encoders.sources import matcher_folder

    if name not in NAMES and matcher_folder(name) is None and is_detector(name):
        return load_detector(name, size, regions).eval()
    if regions is not None:
        raise DiptychError("a backbone's regions are its cells; a number of regions is for detectors", where=name)
    return load_backbone(name, size).eval()


def describe(extractor: Extractor, name: str, precision: Precision = "half") -> FeatureSource:
    """What a feature file says about where its features came from."""
    return FeatureSource(
        backbone=name,
        size=extractor.size,
        dim=extractor.dim,
        precision=precision,
        grid=extractor.grid,
        regions=getattr(extractor, "count", None),
        weights=weights_checksum(extractor),
        package=f"diptych {diptych.__version__}",
    )


def weights_checksum(model: nn.Module) -> str:
    """SHA-256 over the names, shapes and values of a model's weights."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        value = tensor.detach().cpu().contiguous()
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}\n".encode())
        digest.update(value.flatten().view(torch.uint8).numpy() if value.numel() else b"")
    return digest.hexdigest()


def extract_features(
    items: Sequence[Item],
    extractor: Extractor,
    writer: FeatureWriter,
    *,
    batch_size: int | None = None,
    workers: int | None = None,
) -> list[DataProblem]:
    """Add the features of the pictures that `writer` does not have yet; returns those that could not be read.

    On the CPU each worker takes a batch from the file to the features on one core, so that decoding never waits for
    the model nor the model for it. Elsewhere the workers decode, and the device gets one batch after another.
    """
    waiting = [item for item in items if item.id not in writer.done]
    on_cpu = extractor.device.type == "cpu"
    if batch_size is None:  # on the CPU, larger activations cost more in fresh memory than larger batches gain
        batch_size = 4 if on_cpu or extractor.grid is None else 32
    workers = check_sizes(batch_size, workers)
    batch_size = max(1, min(batch_size, -(-len(waiting) // workers)))
    batches = (waiting[i : i + batch_size] for i in range(0, len(waiting), batch_size))
    dtype = _DTYPES[writer.source.precision]
    extractor = extractor.eval().to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def prepare(batch: Sequence[Item]) -> "_Batch":
        return _Batch([_prepare(extractor, item) for item in batch])

    def finish(batch: "_Batch") -> tuple["_Batch", list[tuple[Item, Regions]]]:
        with torch.inference_mode():
            return batch, batch.extract(extractor, dtype)

    problems: list[DataProblem] = []
    through = read_ahead(batches, prepare, finish, on_cpu=on_cpu, workers=workers, ahead=workers + 1)
    with progress_bar("pictures") as bar, closing(through):
        task = bar.add_task("features", total=len(items), completed=len(items) - len(waiting), note="")
        for batch, done in through:
            for item, regions in done:
                writer.add(item.id, regions)
            problems += batch.problems
            bar.update(task, advance=len(batch.entries), note=f"{len(problems)} unreadable" if problems else "")
    writer.commit()
    return problems


class _Batch:
    """Pictures ready for the model, and those that could not be read."""

    def __init__(self, entries: list[tuple[Item, np.ndarray, Size] | DataProblem]) -> None:
        self.entries = entries
        self.problems = [entry for entry in entries if isinstance(entry, DataProblem)]

    def extract(self, extractor: Extractor, dtype: torch.dtype) -> list[tuple[Item, Regions]]:
        """The features of those that could be read."""
        good = [entry for entry in self.entries if not isinstance(entry, DataProblem)]
        if not good:
            return []
        local = extractor.extract([pixels for _, pixels, _ in good], [size for _, _, size in good], dtype)
        return [(item, regions) for (item, _, _), regions in zip(good, local, strict=True)]


def _prepare(extractor: Extractor, item: Item) -> tuple[Item, np.ndarray, Size] | DataProblem:
    where = item.path or item.id
    if item.open is None:
        return DataProblem(where, "the data has no picture of it")
    try:
        with DECODED.holding():  # until it is as small as the model takes it
            image, size = open_with_size(item.open, extractor.size)
            return item, extractor.prepare(image), size
    except DiptychError as error:
        return DataProblem(where, error.within(where))
