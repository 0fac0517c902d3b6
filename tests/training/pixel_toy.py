"""A run on small pictures through a tiny backbone."""

from pathlib import Path

from diptych.data.collection import Collection, Item, sentences
from diptych.encoders.images import PixelConfig
from diptych.encoders.texts import GRUConfig
from diptych.matchers.vse import VSEConfig
from diptych.training.data import Splits
from diptych.training.recipe import Recipe
from tests.encoders.pictures import picture
from tests.encoders.tiny_models import resnet, save
from tests.training import toy

SIZE = 32


def collection(count: int = 12, size: tuple[int, int] = (SIZE, SIZE), name: str = "pictures") -> Collection:
    items = [
        Item(
            str(i),
            sentences([f"{toy.WORDS[i % 8]} {toy.WORDS[i // 8 % 8]}", f"the {toy.WORDS[i % 8]}"], str(i)),
            split="train" if i < count * 2 // 3 else "val",
            open=lambda i=i: picture(*size, seed=i),  # type: ignore[misc]
        )
        for i in range(count)
    ]
    return Collection(name, items)


def splits() -> Splits:
    whole = collection()
    return Splits(whole.split("train"), whole.split("val"), whole.split("val"))


def recipe(folder: Path, **training: object) -> Recipe:
    backbone = str(folder / "resnet")
    if not Path(backbone).is_dir():
        save(resnet(), Path(backbone))
    model = VSEConfig(
        dim=16,
        image=PixelConfig(backbone=backbone, size=SIZE),
        text=GRUConfig(word_dim=6),
        image_pool="gpo",
        text_pool="gpo",
        drop_cells=True,
    )
    return toy.recipe(model=model, **{"batch_size": 4, "sampler": "all-captions", "augment": True, **training})
