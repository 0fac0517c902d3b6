"""What a collection holds, in figures and three examples."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from diptych.data.check import Checked, spread
from diptych.data.collection import Collection, DataProblem
from diptych.data.vocabulary import split_words


@dataclass(frozen=True)
class Spread:
    """Smallest, middle, mean and largest of some numbers."""

    least: float
    median: float
    mean: float
    most: float


@dataclass(frozen=True)
class SplitCount:
    """How much one split holds."""

    pictures: int
    captions: int


@dataclass(frozen=True)
class FeatureSummary:
    """Local features: rows in the source, length of a vector, regions a picture, how many pictures have boxes."""

    rows: int
    dim: int
    regions: Spread | None
    with_boxes: int
    looked_at: int


@dataclass(frozen=True)
class PictureSummary:
    """Picture files: how many there are, how many were decoded, and their sizes in pixels."""

    files: int
    decoded: int
    width: Spread | None
    height: Spread | None


@dataclass(frozen=True)
class Example:
    """One item as people see it."""

    id: str
    split: str
    path: str | None
    captions: list[str]


@dataclass(frozen=True)
class Summary:
    """Everything that `diptych data` says."""

    name: str
    format: str
    pictures: int
    captions: int
    splits: dict[str, SplitCount]
    captions_per_picture: dict[int, int]  # how many pictures have so many captions
    words_per_caption: Spread | None
    different_words: int
    features: FeatureSummary | None
    picture_files: PictureSummary
    restval: int
    examples: list[Example]
    problems: list[DataProblem]

    def as_json(self) -> dict[str, Any]:
        """Plain dictionaries and lists, ready for JSON."""
        return asdict(self)


def summarise(collection: Collection, checked: Checked) -> Summary:
    """The figures of a collection; `checked` gives what only the deep check sees."""
    words: Counter[str] = Counter()
    lengths = []
    splits: dict[str, SplitCount] = {}
    for item in collection.items:
        before = splits.get(item.split, SplitCount(0, 0))
        splits[item.split] = SplitCount(before.pictures + 1, before.captions + len(item.sentences))
        for sentence in item.sentences:
            tokens = split_words(sentence.text)
            words.update(tokens)
            lengths.append(len(tokens))
    return Summary(
        name=collection.name,
        format=collection.format,
        pictures=len(collection),
        captions=len(lengths),
        splits=splits,
        captions_per_picture=dict(sorted(Counter(len(item.sentences) for item in collection.items).items())),
        words_per_caption=_spread(lengths),
        different_words=len(words),
        features=_features(collection, checked),
        picture_files=PictureSummary(
            files=sum(item.open is not None for item in collection.items),
            decoded=len(checked.sizes),
            width=_spread([width for width, _ in checked.sizes]),
            height=_spread([height for _, height in checked.sizes]),
        ),
        restval=sum(item.metadata.get("source_split") == "restval" for item in collection.items),
        examples=[
            Example(item.id, item.split, item.path, [sentence.text for sentence in item.sentences])
            for item in spread(collection.items, 3)
        ],
        problems=list(collection.problems),
    )


def _features(collection: Collection, checked: Checked) -> FeatureSummary | None:
    features = collection.features
    if features is None:
        return None
    return FeatureSummary(len(features), features.dim, _spread(checked.regions), checked.boxes, len(checked.regions))


def _spread(numbers: Sequence[int]) -> Spread | None:
    if not numbers:
        return None
    return Spread(min(numbers), float(median(numbers)), round(sum(numbers) / len(numbers), 2), max(numbers))
