import base64

from hypothesis import given
from hypothesis import strategies as st

from diptych.search.index import Index
from diptych.web.service.ids import Ids, ids_of
from tests.web.models import index, own_folders, vse_folder

__all__ = ["index", "own_folders", "vse_folder"]
IDS = Ids(b"one secret")
KEYS = st.text(st.characters(codec="utf-8"), max_size=300)


@given(KEYS)
def test_an_id_gives_its_key_back(key: str) -> None:
    assert IDS.key(IDS.of(key)) == (key or None)
    assert IDS.of(key) == IDS.of(key)


@given(KEYS, st.integers(0, 10_000), st.integers(1, 255))
def test_a_changed_id_means_nothing(key: str, place: int, change: int) -> None:
    raw = bytearray(base64.urlsafe_b64decode(IDS.of(key) + "=="))
    raw[place % len(raw)] ^= change
    assert IDS.key(base64.urlsafe_b64encode(bytes(raw)).decode().rstrip("=")) is None


@given(st.text(max_size=60))
def test_anything_else_means_nothing(text: str) -> None:
    assert IDS.key(text) is None


def test_ids_of_another_secret_mean_nothing() -> None:
    assert Ids(b"another").key(IDS.of("/home/me/a.jpg")) is None


def test_ids_tell_nothing_of_the_path() -> None:
    raw = base64.urlsafe_b64decode(IDS.of("/home/me/holiday/a.jpg") + "==")
    assert b"home" not in raw
    assert IDS.of("/home/me/a.jpg")[:20] != IDS.of("/home/me/b.jpg")[:20]


def test_the_secret_of_an_index_is_used_again(index: Index) -> None:
    index.store.set_properties({"serve-secret": "5f" * 16})
    assert ids_of(index).key(Ids(b"5f" * 16).of("/home/me/a.jpg")) == "/home/me/a.jpg"


def test_ids_last_as_long_as_the_index(index: Index) -> None:
    address, before = index.store.address, ids_of(index).of("/home/me/a.jpg")
    with Index.open(address) as again:
        assert ids_of(again).of("/home/me/a.jpg") == before
