"""Pages in one file: hover a word and see where it looks, hover a region and see which words."""

import base64
import io

from PIL import Image

from diptych.common.pages import render
from diptych.explain.explanation import Explanation
from diptych.explain.why import told_of, view_of

LARGEST = 1280


def explanation_page(explanation: Explanation, picture: Image.Image | None) -> str:
    """The page as text. Without a picture, or without boxes, the regions are numbered buttons.

    >>> explanation_page(told, Image.open("dog.png")).startswith("<!doctype html>")
    True
    """
    told = told_of(explanation)
    explained = view_of(told)
    values = {
        "title": f"{explained.model}: {explanation.sentence}",
        "told": told,
        "explained": explained,
        "picture": None if picture is None else data_uri(picture),
    }
    return str(render("explain/explanation.html", values))


def picture_page(title: str, picture: Image.Image, description: str) -> str:
    """A page that shows one drawn picture, such as a comparison."""
    values = {"title": title, "picture": data_uri(picture), "description": description}
    return str(render("explain/picture.html", values))


def data_uri(picture: Image.Image) -> str:
    """A picture inside an address: PNG where it is small and plain, else JPEG."""
    shown = picture.convert("RGB")
    shown.thumbnail((LARGEST, LARGEST))
    written = {}
    for kind in ("png", "jpeg"):
        data = io.BytesIO()
        shown.save(data, kind, quality=88)
        written[kind] = data.getvalue()
    kind = "png" if len(written["png"]) < 2 * len(written["jpeg"]) else "jpeg"
    return f"data:image/{kind};base64,{base64.b64encode(written[kind]).decode()}"
