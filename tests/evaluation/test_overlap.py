import pytest

from diptych.data.collection import Collection, Item
from diptych.evaluation.overlap import trained_on


def one(name: str, id: str, filename: str | None = None, cocoid: str | None = None) -> Collection:
    metadata = {k: v for k, v in (("filename", filename), ("cocoid", cocoid)) if v}
    return Collection(name, [Item(id, (), metadata=metadata)])


@pytest.mark.parametrize(
    ("training", "test", "same"),
    [
        (one("f30k", "1000268201", "1000268201.jpg"), one("f8k", "x", "1000268201_693b08cb0e.jpg"), True),
        (one("f30k", "1000268202", "1000268202.jpg"), one("f8k", "x", "1000268201_693b08cb0e.jpg"), False),
        (one("coco", "391895", "val2014/COCO_val2014_000000391895.jpg"), one("k", "a", None, "391895"), True),
        (one("coco", "000000391895.jpg"), one("k", "COCO_val2014_000000391895.jpg"), True),
        (one("mine", "a.jpg"), one("mine", "a.jpg"), True),
        (one("mine", "a.jpg"), one("yours", "a.jpg"), False),
        (one("mine", "1.jpg"), one("yours", "1.jpg"), False),
    ],
)
def test_the_same_photo_is_known_under_its_names(training: Collection, test: Collection, same: bool) -> None:
    assert trained_on(training, test) == ([test.items[0].id] if same else [])
