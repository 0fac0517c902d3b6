"""Pages of HTML: a room keeps its templates in `templates`, its styles and scripts in `static`.

Both are named by their room: `explain/why.html` is the template src/diptych/explain/templates/why.html. Jinja is
imported when a page is made and not before, since nothing else needs it.
"""

import re
from collections.abc import Callable, Mapping
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import TYPE_CHECKING

from diptych.common.errors import DiptychError

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup


def render(template: str, values: Mapping[str, object]) -> "Markup":
    """A template with its values; the text may be put into another template as it is."""
    return _as_it_is(_shared().get_template(template).render(values))


def page_environment() -> "Environment":
    """The templates of all rooms. Whatever is put into them is escaped, and a name that nobody gave is an error.

    `inline(name)` puts a style or script into a page as it is; `|marked` shows what stands between backticks as code.
    """
    try:
        from jinja2 import Environment, FunctionLoader, StrictUndefined
    except ImportError:
        raise DiptychError("a page needs the package jinja2, which is not installed; try pip install jinja2") from None
    environment = Environment(
        loader=FunctionLoader(_template),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    environment.policies["json.dumps_kwargs"] = {"ensure_ascii": False, "separators": (",", ":")}
    environment.globals["inline"] = lambda name: _as_it_is(static_text(name))
    environment.filters["marked"] = _marked
    return environment


def static_text(name: str) -> str:
    """A style or script, such as `common/base.css`."""
    return _file(name, "static").read_text(encoding="utf-8")


@cache
def colour(name: str) -> tuple[int, int, int]:
    """A colour of the pages for what is drawn in Python: red, green and blue, in light, by its name in colours.css."""
    written = re.search(rf"--{re.escape(name)}: (\d+), (\d+), (\d+);", static_text("common/colours.css"))
    if written is None:
        raise KeyError(f"colours.css has no --{name} that is written as red, green, blue")
    return int(written[1]), int(written[2]), int(written[3])


@cache
def _shared() -> "Environment":
    return page_environment()


def _template(name: str) -> tuple[str, str, Callable[[], bool]] | None:
    file = _file(name, "templates")
    return (file.read_text(encoding="utf-8"), str(file), lambda: True) if file.is_file() else None


def _file(name: str, folder: str) -> Traversable:
    room, _, rest = name.partition("/")
    return files("diptych").joinpath(room, folder, rest)


def _marked(text: str) -> "Markup":
    from markupsafe import escape

    return _as_it_is(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))


def _as_it_is(text: str) -> "Markup":
    from markupsafe import Markup

    return Markup(text)
