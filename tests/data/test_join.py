import numpy as np
import pytest

from diptych.common.errors import DiptychError
from diptych.data.collection import Collection, Item, sentences
from diptych.data.join import join_collections
from tests.training import toy


def named(name: str, *ids: str) -> Collection:
    return Collection(name, [Item(id, sentences([f"{name} {id}"], id)) for id in ids])


def test_pictures_come_in_order_and_shared_ids_get_their_collections_name() -> None:
    joined = join_collections([named("coco", "1", "2"), named("flickr", "2", "3")])
    assert [item.id for item in joined.items] == ["1", "coco/2", "flickr/2", "3"]
    assert joined.captions()[0] == ["coco 1", "coco 2", "flickr 2", "flickr 3"]
    assert joined.name == "coco + flickr"


def test_collections_of_one_name_stay_apart() -> None:
    joined = join_collections([named("a", "1"), named("a", "1"), named("a", "1")])
    assert [item.id for item in joined.items] == ["a/1", "a-2/1", "a-3/1"]


def test_one_collection_stays_as_it_is() -> None:
    one = named("a", "1")
    assert join_collections([one]) is one


def test_features_are_found_under_the_joined_rows() -> None:
    first, second = toy.collection(6), toy.collection(9)
    joined = join_collections([first, named("none", "x"), second.first(4)])
    assert joined.features is not None
    assert joined.items[6].row is None
    for item, (part, i) in zip(joined.items[7:], [(second, i) for i in range(4)], strict=True):
        assert item.row is not None
        assert part.features is not None
        np.testing.assert_array_equal(joined.features[item.row].vectors, part.features[i].vectors)


def test_features_of_different_lengths_are_refused() -> None:
    class Longer(toy.ToyFeatures):
        @property
        def dim(self) -> int:
            return 9

    other = Collection("other", [Item("a", (), row=0)], Longer([[1]]))
    with pytest.raises(DiptychError, match="different dimensions"):
        join_collections([toy.collection(3), other])
