"""Several collections as one."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from diptych.data.collection import Collection, Features
from diptych.data.readers.arrays import JoinedFeatures


def join_collections(parts: Sequence[Collection]) -> Collection:
    """The pictures of all parts, in order. An id that several parts have gets its part's name in front."""
    if len(parts) == 1:
        return parts[0]
    names = distinct_names(parts)
    counts = Counter(id for part in parts for id in {item.id for item in part.items})
    items, features = [], list[Features]()
    start = 0
    for name, part in zip(names, parts, strict=True):
        for item in part.items:
            id = f"{name}/{item.id}" if counts[item.id] > 1 else item.id
            items.append(replace(item, id=id, row=None if item.row is None else start + item.row))
        if part.features is not None:
            features.append(part.features)
            start += len(part.features)
    problems = tuple(problem for part in parts for problem in part.problems)
    formats = " + ".join(dict.fromkeys(part.format for part in parts if part.format))
    return Collection(" + ".join(names), items, JoinedFeatures(features) if features else None, problems, formats)


def distinct_names(parts: Sequence[Collection]) -> list[str]:
    """The collections' names; the second of a name is `name-2`."""
    seen: Counter[str] = Counter()
    names = []
    for part in parts:
        seen[part.name] += 1
        names.append(part.name if seen[part.name] == 1 else f"{part.name}-{seen[part.name]}")
    return names
