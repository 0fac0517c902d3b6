"""Pictures that a model was trained on must not be in its test: they are found by the photo's own number."""

import re
from pathlib import PurePosixPath

from diptych.data.collection import Collection, Item

# Flickr8k's 1000268201_693b08cb0e.jpg is Flickr30K's 1000268201.jpg; COCO_val2014_000000391895.jpg is picture 391895.
_NUMBER = re.compile(r"(?:COCO_\w+?_)?0*(\d{4,})(?:_[0-9a-f]{6,})?(?:_[a-z])?")


def photo_key(item: Item, collection: str) -> str:
    """What a photo is called in every dataset that has it; else its id within its own collection."""
    names = [item.metadata.get("cocoid"), item.metadata.get("filename"), item.path, item.id]
    for name in names:
        stem = PurePosixPath(name.replace("\\", "/")).stem if name else ""
        if match := _NUMBER.fullmatch(stem):
            return match[1]
    return f"{collection}:{item.id}"


def trained_on(training: Collection, test: Collection) -> list[str]:
    """Ids of the test's pictures that are among the training pictures."""
    known = {photo_key(item, training.name) for item in training.items}
    return [item.id for item in test.items if photo_key(item, test.name) in known]
