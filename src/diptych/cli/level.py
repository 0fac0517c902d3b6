"""`diptych level`."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from diptych.cli.completion import complete_model
from diptych.cli.options import BatchSizeOption, DeviceOption
from diptych.common.errors import DiptychError

if TYPE_CHECKING:
    import numpy as np

    from diptych.data.collection import Collection, Item
    from diptych.matchers.base import Matcher
    from diptych.matchers.hubs import Bank
    from diptych.search.models.embedder import Embedder


def command(
    model: Annotated[
        str, typer.Argument(autocompletion=complete_model, help="A run or a saved matcher of one vector a side.")
    ],
    data: Annotated[
        list[str],
        typer.Option(help="Pictures with sentences like those it will meet, such as its training data; repeatable."),
    ],
    out: Annotated[Path, typer.Option(help="The folder to write; new or empty.")],
    split: Annotated[str, typer.Option(help="Which split of the data.")] = "train",
    features: Annotated[
        list[Path] | None, typer.Option(help="Local features of the pictures, one for each --data.")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="At most so many pictures of each, drawn at random.")] = None,
    prototypes: Annotated[
        int | None, typer.Option(help="Centres of clusters that stand for all pictures, or all sentences; 4,096.")
    ] = None,
    share: Annotated[
        float | None, typer.Option(help="How much of what a picture scores anyway is taken off; 0.6.")
    ] = None,
    sentence_share: Annotated[float | None, typer.Option(help="The same of a sentence; 0.3.")] = None,
    temperature: Annotated[float | None, typer.Option(help="How near a centre must be to count; 1/30.")] = None,
    half: Annotated[bool, typer.Option("--half", help="Write the weights in half precision.")] = False,
    seed: Annotated[int, typer.Option(help="Of what is drawn at random.")] = 0,
    device: DeviceOption = "auto",
    batch_size: BatchSizeOption = 64,
) -> None:
    """Take off what a picture scores with any sentence, and a sentence with any picture; nothing is trained."""
    import shutil
    from dataclasses import replace

    import numpy as np
    import torch

    from diptych.cli.models import load_model
    from diptych.common.config import parse
    from diptych.common.model_place import find_model
    from diptych.data.read import read_collection
    from diptych.encoders.quick.int8_ranges import FILE
    from diptych.matchers.hubs import HubConfig
    from diptych.search.models.embedder import Embedder

    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise DiptychError(f"--out {out}: already there; expected a new folder, or an empty one")
    if features and len(features) != len(data):
        raise DiptychError(f"--features: expected one for each of {len(data)} --data, got {len(features)}")
    given = {
        "prototypes": prototypes, "share": share, "sentence_share": sentence_share, "temperature": temperature,
    }  # fmt: skip
    hubs = parse(HubConfig, {key: value for key, value in given.items() if value is not None}, "level")
    locals_of = dict(zip(data, features or [], strict=False))
    collections = [read_collection(path, features=locals_of.get(path), split=split) for path in data]
    if limit is not None:
        random = np.random.default_rng(seed)
        for place, whole in enumerate(collections):
            rows = np.sort(random.permutation(len(whole))[:limit])
            collections[place] = replace(whole, items=[whole.items[row] for row in rows])
    matcher = load_model(model, device)
    if not matcher.can_be_levelled:
        matcher.level([])  # which says why
    quick = matcher.device.type == "cpu" and not matcher.takes_features
    embedder = Embedder(matcher, find_model(model).name) if quick else None
    banks = [
        encoded(matcher, collection, batch_size) if embedder is None else embedded(embedder, collection, batch_size)
        for collection in collections
    ]
    matcher.level(banks, hubs, seed)
    told = ", ".join(
        f"{len(bank.pictures):,} pictures and {len(bank.sentences):,} sentences of {path}"
        for bank, path in zip(banks, data, strict=True)
    )
    card = f"# {out.name}\n\n{model}, a {matcher.title}, with its hubs levelled by {told}.\n"
    matcher.save_pretrained(out, card, torch.float16 if half else None)
    folder = find_model(model).folder
    if folder is not None and (folder / FILE).is_file():
        shutil.copyfile(folder / FILE, out / FILE)  # its image encoder is the same
    print(f"{out}: levelled by {told}")


def encoded(matcher: "Matcher", collection: "Collection", batch_size: int) -> "Bank":
    """What a matcher keeps of a collection."""
    from diptych.evaluation.encode import encode_collection
    from diptych.matchers.hubs import Bank

    images, texts = encode_collection(matcher, collection, batch_size)
    return Bank(images.vectors[:, 0], texts.vectors[:, 0])


def embedded(embedder: "Embedder", collection: "Collection", batch_size: int) -> "Bank":
    """The same by the model's quick form, as an index is filled."""
    from concurrent.futures import ThreadPoolExecutor

    import numpy as np
    import torch

    from diptych.common.progress import progress_bar
    from diptych.matchers.hubs import Bank

    if not collection.items or not collection.captions()[0]:
        raise DiptychError("expected pictures with sentences", where=collection.name)
    sentences = sorted(collection.captions()[0], key=len)  # few pads; a bank has no order
    pictures, texts = [], []
    embedder.hasten_pictures()

    def vector(item: "Item") -> "np.ndarray":
        if item.open is None:
            raise DiptychError(f"picture {item.id} comes without a file, which this model needs", where=collection.name)
        return embedder.embed_pictures([item.open])

    with progress_bar() as bar, ThreadPoolExecutor(os.cpu_count()) as threads:
        task = bar.add_task("encoding pictures", total=len(collection), note="")
        for one in threads.map(vector, collection.items):
            pictures.append(one[:, 0])
            bar.advance(task)
        task = bar.add_task("encoding sentences", total=len(sentences), note="")
        for start in range(0, len(sentences), 4 * batch_size):
            texts.append(embedder.embed_texts(sentences[start : start + 4 * batch_size])[:, 0])
            bar.advance(task, len(texts[-1]))
    return Bank(torch.from_numpy(np.concatenate(pictures)), torch.from_numpy(np.concatenate(texts)))
