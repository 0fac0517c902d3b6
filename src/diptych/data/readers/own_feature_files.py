"""Our own feature files, as `diptych features` writes them."""

from pathlib import Path

from diptych.data.collection import Collection, Item
from diptych.data.feature_file import FeatureFile
from diptych.data.readers.faults import Faults, Gathering


def read_feature_file(path: Path, faults: Faults) -> Collection:
    """The pictures that a feature file has features of, without sentences."""
    features = FeatureFile(path)
    gathering = Gathering(faults, captioned=False)
    for row, id in enumerate(features.ids):
        gathering.add(Item(id, (), row=row), f"{path}: row {row}")
    return Collection(path.stem, gathering.items, features, format="Diptych features")
