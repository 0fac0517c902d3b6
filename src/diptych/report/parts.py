"""Small parts of the report's page: sections, and the pictures of items."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from PIL import Image

from diptych.common.errors import DiptychError
from diptych.common.pages import render
from diptych.data.collection import Item
from diptych.data.open_picture import open_picture
from diptych.explain.html import data_uri

if TYPE_CHECKING:
    from markupsafe import Markup

THUMBNAIL = 224


@dataclass(frozen=True)
class Section:
    """A part of the page: its anchor, its title and its HTML."""

    id: str
    title: str
    body: "Markup"


def section(id: str, title: str, values: Mapping[str, object]) -> Section:
    """A section out of the template that has its name."""
    return Section(id, title, render(f"report/{id}.html", values))


@dataclass(frozen=True)
class Thumbnail:
    """A small picture, as an address that holds it; without one, a name and a sentence stand in."""

    address: str | None
    name: str
    sentence: str


class Pictures:
    """Small pictures of items, each decoded once."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Item, Thumbnail]] = {}

    def of(self, item: Item) -> Thumbnail:
        """The picture of an item; where there is none, the item's name and first sentence."""
        key = id(item)  # ids of two pictures may be the same
        if key not in self._known:
            self._known[key] = item, _thumbnail(item)
        return self._known[key][1]


def _thumbnail(item: Item) -> Thumbnail:
    first = item.sentences[0].text if item.sentences else ""
    why = ""
    if item.open is not None:
        try:
            picture = open_picture(item.open)
        except DiptychError as error:
            why = error.what  # where the file is, is nobody else's business
        else:
            picture.thumbnail((THUMBNAIL, THUMBNAIL), Image.Resampling.LANCZOS)
            return Thumbnail(data_uri(picture), item.id, first)
    return Thumbnail(None, f"picture {item.id}" + (f" ({why})" if why else ""), first)
