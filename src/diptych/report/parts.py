"""Small parts of the report's page: sections, facts, notes, the picture of an item."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from PIL import Image

from diptych.common.errors import DiptychError
from diptych.data.collection import Item
from diptych.explain.html import data_uri
from diptych.matchers.base import open_picture

THUMBNAIL = 224


@dataclass(frozen=True)
class Section:
    """A part of the page: its anchor, its title and its HTML."""

    id: str
    title: str
    body: str

    def html(self) -> str:
        """The section as it stands on the page."""
        head = f'<h2 id="{self.id}-h">{escape(self.title)}</h2>'
        return f'<section aria-labelledby="{self.id}-h">{head}{self.body}</section>'


def facts(pairs: Sequence[tuple[str, str]]) -> str:
    """Names and what they are, in two columns."""
    return '<dl class="facts">' + "".join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in pairs) + "</dl>"


def warnings(notes: Sequence[str]) -> str:
    """Sentences that must not be overlooked."""
    return '<ul class="warnings">' + "".join(f"<li>{marked(n)}</li>" for n in notes) + "</ul>" if notes else ""


def paragraph(text: str, css: str = "") -> str:
    """A paragraph of plain text, with `code` between backticks."""
    return f'<p class="{css}">{marked(text)}</p>' if css else f"<p>{marked(text)}</p>"


def marked(text: str) -> str:
    """Plain text as HTML, with `code` between backticks."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))


class Pictures:
    """Small pictures of items, each decoded once."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Item, str]] = {}

    def html(self, item: Item) -> str:
        """The picture inside the page; where there is none, the item's name and first sentence."""
        key = id(item)  # ids of two pictures may be the same
        if key not in self._known:
            self._known[key] = item, self._make(item)
        return self._known[key][1]

    def _make(self, item: Item) -> str:
        first = item.sentences[0].text if item.sentences else ""
        why = ""
        if item.open is not None:
            try:
                picture = open_picture(item.open)
            except DiptychError as error:
                # Its words begin with where the file is, which is nobody else's business.
                why = str(error).rsplit(": ", 1)[-1]
            else:
                picture.thumbnail((THUMBNAIL, THUMBNAIL), Image.Resampling.LANCZOS)
                told = f"{item.id}: {first}" if first else item.id
                return f'<img src="{data_uri(picture)}" alt="{escape(told)}">'
        name = f"picture {item.id}" + (f" ({why})" if why else "")
        sentence = f"<br>“{escape(first)}”" if first else ""
        return f'<div class="blank">{escape(name)}{sentence}</div>'
