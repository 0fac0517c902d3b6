"""Pictures, sentences and features that come from different places, joined by the pictures' names."""

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

from diptych.data.collection import Collection, Features, Item
from diptych.data.readers.arrays import place
from diptych.data.readers.faults import Faults
from diptych.data.readers.picture_names import Names, item_names

_NOT_LETTERS = re.compile(r"[\W_]+")


def same_captions(one: Item, other: Item) -> bool:
    """Whether two sources tell the same of a picture; case, punctuation and order do not count."""
    return sorted(map(_letters, one.sentences)) == sorted(map(_letters, other.sentences))


def _letters(sentence: object) -> str:
    return _NOT_LETTERS.sub("", str(getattr(sentence, "text", sentence)).lower())


def _contradiction(one: Item, one_place: str, other: Item, other_place: str) -> str | None:
    if one.sentences and other.sentences and not same_captions(one, other):
        theirs = {_letters(s) for s in other.sentences}
        ours = {_letters(s) for s in one.sentences}
        extra = next((s.text for s in other.sentences if _letters(s) not in ours), None)
        lacking = next((s.text for s in one.sentences if _letters(s) not in theirs), None)
        said = [f"{text!r} is only in {where}" for text, where in ((lacking, one_place), (extra, other_place)) if text]
        counts = f"{len(one.sentences)} and {len(other.sentences)} captions"
        return f"{one_place} and {other_place} disagree on its captions: {' and '.join(said) or counts}"
    splits = {one.split, other.split}
    if len(splits) == 2 and "all" not in splits and splits != {"test", "testall"}:
        return f"the picture is in two splits: {one.split!r} in {one_place}, {other.split!r} in {other_place}"
    return None


def union(one: Collection, one_place: str, other: Collection, other_place: str, faults: Faults) -> Collection:
    """The pictures of two captions files; one that is in both must have the same captions and split."""
    names = Names(item_names(item) for item in one.items)
    items, dropped, added = list(one.items), set(), []
    for item in other.items:
        position = names.find(item_names(item))
        if position is None:
            added.append(item)
            continue
        wrong = _contradiction(items[position], one_place, item, other_place)
        if wrong:
            faults.tell(f"picture {item.id!r}", wrong)
            dropped.add(position)
        elif items[position].split == "all":
            items[position] = replace(items[position], split=item.split)
    kept = [item for i, item in enumerate(items) if i not in dropped]
    return replace(one, items=[*kept, *added], format=_formats(one, other))


def _formats(*collections: Collection) -> str:
    return " + ".join(dict.fromkeys(c.format for c in collections if c.format))


def with_captions(
    captions: Collection,
    captions_place: str,
    source: Collection,
    source_place: str,
    faults: Faults,
    every: bool = False,
    what: str = "picture",
) -> Collection:
    """The items of a captions file with the pictures and features that `source` has of them.

    every: a picture of `source` that the captions file does not know, in a folder of others that it knows, is a problem
    """
    names = Names(item_names(item) for item in source.items)
    items, used = [], set()
    for item in captions.items:
        position = names.find(item_names(item))
        if position is None:
            faults.tell(captions_place, f"no {what} for {_called(item)} in {source_place}")
            continue
        used.add(position)
        twin = source.items[position]
        wrong = _contradiction(item, captions_place, twin, source_place)
        if wrong:
            faults.tell(f"picture {item.id!r}", wrong)
            continue
        items.append(
            replace(
                item,
                split=twin.split if item.split == "all" else item.split,
                open=twin.open or item.open,
                path=twin.path or item.path,
                row=item.row if twin.row is None else twin.row,
                metadata={**twin.metadata, **item.metadata},
            )
        )
    if every:
        known = {_home(source.items[position]) for position in used}
        for position, twin in enumerate(source.items):
            if position not in used and _home(twin) in known:
                faults.tell(source_place, f"the {what} {twin.path or twin.id} has no captions in {captions_place}")
    features = captions.features if source.features is None else source.features
    return replace(captions, items=items, features=features, format=_formats(captions, source))


def _home(item: Item) -> str:
    return (item.path or "").rpartition("/")[0]


def _called(item: Item) -> str:
    filename = item.metadata.get("filename")
    return repr(item.id) if filename in (None, item.id) else f"{item.id!r} ({filename})"


def checked_against(
    collection: Collection, own_place: str, captions: Collection, captions_place: str, faults: Faults
) -> Collection:
    """Items with captions of their own, given the texts and ids of a second captions file that must say the same."""
    names = Names(item_names(item) for item in captions.items)
    items = []
    for item in collection.items:
        position = names.find(item_names(item))
        twin = None if position is None else captions.items[position]
        if twin is None:
            faults.tell(captions_place, f"no captions for the picture {_called(item)} of {own_place}")
            continue
        wrong = _contradiction(item, own_place, twin, captions_place)
        if wrong:
            faults.tell(f"picture {item.id!r}", wrong)
            continue
        split = twin.split if item.split == "all" else item.split
        metadata = {**item.metadata, **twin.metadata}
        items.append(replace(item, sentences=twin.sentences or item.sentences, split=split, metadata=metadata))
    return replace(collection, items=items, format=_formats(collection, captions))


def with_features(collection: Collection, source: Collection, source_place: str, faults: Faults) -> Collection:
    """Items with their rows of the local features of `source`, found by id and file name."""
    names = Names(item_names(item) for item in source.items)
    items = []
    for item in collection.items:
        position = names.find(item_names(item))
        if position is None:
            faults.tell(source_place, f"no features for the picture {_called(item)}")
        else:
            items.append(replace(item, row=source.items[position].row))
    return replace(collection, items=items, features=source.features, format=_formats(collection, source))


def with_features_in_order(collection: Collection, features: Features, source_place: str, faults: Faults) -> Collection:
    """Items with features that have no ids: a row for each picture, or one for each caption, in order."""
    rows, pictures = len(features), len(collection.items)
    counts = [len(item.sentences) for item in collection.items]
    if rows == pictures:
        numbers = list(range(pictures))
    elif rows == sum(counts):
        numbers = [0, *accumulate(counts)][:pictures]
    else:
        faults.tell(
            source_place,
            f"{rows} rows without ids; expected {pictures}, one a picture, or {sum(counts)}, one a caption",
        )
        return replace(collection, items=[])
    items = [replace(item, row=row) for item, row in zip(collection.items, numbers, strict=True)]
    return replace(collection, items=items, features=features)


def without_wrong_dimension(parts: Sequence[Features], faults: Faults) -> list[Features]:
    """The sources whose vectors are as long as the first one's."""
    kept: list[Features] = []
    for part in parts:
        if kept and part.dim != kept[0].dim:
            faults.tell(
                place(part, 0), f"vectors of dimension {part.dim}; expected {kept[0].dim} as at {place(kept[0], 0)}"
            )
        else:
            kept.append(part)
    return kept
