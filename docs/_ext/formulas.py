"""Formulas as MathML, which browsers draw themselves: the pages load nothing from elsewhere."""

import html
import re
from typing import Any
from xml.etree import ElementTree

from docutils.nodes import SkipNode
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.util import logging

MATHML = "http://www.w3.org/1998/Math/MathML"
ElementTree.register_namespace("", MATHML)


def mend_accents(formula: str) -> str:
    """MathML whose accented letters have their index beside them; docutils puts it below."""
    plain = re.sub(r"&(?!(?:lt|gt|amp);)\w+;", lambda entity: html.unescape(entity[0]), formula)
    tree = ElementTree.fromstring(plain)
    space = "{" + MATHML + "}"
    for both in list(tree.iter(space + "munderover")):
        letter, index, above = list(both)
        if above.tag == space + "mo" and above.get("stretchy") == "false":
            above.text = (above.text or "").replace("\u02c9", "\u00af")  # fonts have this macron, and not that one
            accented = ElementTree.Element(space + "mover", {"accent": "true"})
            accented.extend([letter, above])
            both.tag = space + "msub"
            both[:] = [accented, index]
    return ElementTree.tostring(tree, encoding="unicode")


def write_inline(translator: Any, node: Any) -> None:
    """A formula in a line."""
    write_formula(translator, node, "span", block=False)


def write_block(translator: Any, node: Any) -> None:
    """A formula of its own."""
    write_formula(translator, node, "div", block=True)


def write_formula(translator: Any, node: Any, tag: str, block: bool) -> None:
    """A formula in its place; one that docutils cannot read is a warning, and stays TeX."""
    try:
        formula = mend_accents(tex2mathml(node.astext().replace("\n", " "), as_block=block))
    except MathError as error:
        logging.getLogger(__name__).warning("formula %r: %s", node.astext(), error, location=node)
        formula = translator.encode(node.astext())
    translator.body.append(f'<{tag} class="math">{formula}</{tag}>')
    raise SkipNode


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.add_html_math_renderer("mathml", (write_inline, None), (write_block, None))
