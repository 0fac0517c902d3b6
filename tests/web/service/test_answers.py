from collections.abc import Callable

import pytest

from diptych.search.index import Index
from diptych.search.stores.store import Stamp
from diptych.web.errors import NotFound
from diptych.web.schemas import SearchAnswer, SearchRequest, TextTerm
from diptych.web.service.figures import LaneFigures
from diptych.web.service.service import Service
from diptych.web.settings import ServerSettings
from tests.encoders.pictures import picture
from tests.web.models import index, own_folders, vse_folder
from tests.web.serving import TOKEN

__all__ = ["index", "own_folders", "vse_folder"]
Ask = Callable[..., SearchAnswer]


def counting(service: Service) -> list[int]:
    """How many jobs each batch that is searched for has."""
    sizes: list[int] = []
    batcher = service.lanes.sentences
    batcher._figures = LaneFigures(batch=sizes.append)
    return sizes


def ask(service: Service, text: str = "a red dog", **options: object) -> SearchAnswer:
    return service.search(SearchRequest(terms=[TextTerm(text=text)], **options))  # type: ignore[arg-type]


@pytest.fixture
def service(index: Index) -> Service:
    return Service(ServerSettings(token=TOKEN), index)


def test_the_same_again_is_not_searched_for_again(service: Service) -> None:
    searches = counting(service)
    first, second = ask(service), ask(service)
    assert len(searches) == 1
    assert second.results == first.results
    assert list(second.timings) == ["total"]
    ask(service, top=3)
    ask(service, where=["stars>1"])
    ask(service, "a boat")
    assert len(searches) == 4  # all of them are other questions
    service.close()


def changes(index: Index) -> list[Callable[[], object]]:
    first = next(index.store.stamps())
    return [
        lambda: index.add(pictures={"new": picture(40, 30, seed=77)}),
        lambda: index.store.rename(first.key, Stamp("renamed", first.size, first.changed, first.digest)),
        lambda: index.delete(["new"]),
    ]


def test_whatever_changes_the_index_changes_the_answer(service: Service, index: Index) -> None:
    # As another process does it: the server is not told.
    with Index.open(index.store.address, device="cpu") as other:
        for change in changes(other):
            before = ask(service, top=100)
            change()
            after = ask(service, top=100)
            assert {found.id for found in after.results} != {found.id for found in before.results}
    service.close()


def test_an_error_is_not_remembered(service: Service) -> None:
    searches = counting(service)
    for _ in range(2):
        with pytest.raises(NotFound):
            service.search(SearchRequest(terms=[{"id": "nonsense"}]))  # type: ignore[list-item]
    assert not searches  # it is another lane's; what matters is that it fails twice
    assert ask(service).results
    service.close()


def test_nothing_is_remembered_where_that_is_wanted(index: Index) -> None:
    service = Service(ServerSettings(token=TOKEN, remembered=0), index)
    searches = counting(service)
    ask(service)
    ask(service)
    assert len(searches) == 2
    service.close()
