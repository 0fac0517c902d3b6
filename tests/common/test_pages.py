import re
import subprocess
import sys
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import jinja2
import pytest

import diptych
from diptych.common.errors import DiptychError
from diptych.common.pages import colour, page_environment, render, static_text

SOURCE = Path(diptych.__file__).parent
TEMPLATES = sorted(SOURCE.glob("*/templates/*"))
STATIC = sorted(SOURCE.glob("*/static/*"))


def written(source: str, **values: object) -> str:
    return page_environment().from_string(source).render(values)


def test_whatever_is_put_into_a_template_is_escaped() -> None:
    assert written("<p>{{ text }}</p>", text="<b> & 'x'") == "<p>&lt;b&gt; &amp; &#39;x&#39;</p>"
    assert written("{{ text|marked }}", text="use `a < b` or `") == "use <code>a &lt; b</code> or `"
    data = written("<a data-x='{{ data|tojson }}'>", data={"text": "</script>'\"é", "values": [1, 2.5]})
    assert data == '<a data-x=\'{"text":"\\u003c/script\\u003e\\u0027\\"é","values":[1,2.5]}\'>'


def test_what_is_rendered_goes_into_another_template_as_it_is() -> None:
    inner = render("report/run.html", {"facts": [("a", "<b>")], "recipe": "{}"})
    assert "<dt>a</dt><dd>&lt;b&gt;</dd>" in inner
    assert written("{{ inner }}", inner=inner) == inner


def test_a_name_that_nobody_gave_is_an_error() -> None:
    with pytest.raises(jinja2.UndefinedError, match="recipe"):
        render("report/run.html", {"facts": []})
    with pytest.raises(jinja2.TemplateNotFound):
        render("report/nothing.html", {})


def test_every_template_can_be_read_and_names_templates_that_there_are() -> None:
    environment = page_environment()
    names = {f"{path.parts[-3]}/{path.name}" for path in TEMPLATES}
    assert {"common/file.html", "explain/why.html", "report/report.html", "web/page.html"} <= names
    for path in TEMPLATES:
        environment.get_template(f"{path.parts[-3]}/{path.name}")
        used = re.findall(r"""{%-? *(?:extends|import|include|from) "([^"]+)\"""", path.read_text())
        assert set(used) <= names, path
        inlined = re.findall(r'inline\("([^"]+)"\)', path.read_text())
        assert all(static_text(name) for name in inlined), path


def test_a_style_or_script_cannot_end_the_element_that_it_is_put_into() -> None:
    for path in STATIC:
        assert not re.search(r"</(?:style|script)|<!--", path.read_text()), path


def test_names_of_styles_and_scripts_are_given_once() -> None:
    names = [path.name for path in STATIC]  # the server has one folder for all of them
    assert len(names) == len(set(names))


def test_templates_styles_and_scripts_are_part_of_the_package() -> None:
    settings = tomllib.loads((SOURCE.parent.parent / "pyproject.toml").read_text())
    patterns = settings["tool"]["setuptools"]["package-data"]["diptych"]
    for path in (*TEMPLATES, *STATIC):
        assert any(fnmatch(str(path.relative_to(SOURCE)), pattern) for pattern in patterns), path


def test_colours_are_read_from_the_style() -> None:
    assert colour("warm") == (244, 150, 28)
    assert colour("ramp-5") == (252, 244, 150)
    with pytest.raises(KeyError, match="--paper"):
        colour("paper")  # written in another way


WITHOUT = """
import importlib, pkgutil, sys
sys.modules["jinja2"] = sys.modules["markupsafe"] = None
import diptych
for room in ("common", "data", "encoders", "matchers", "scoring", "evaluation", "training", "explain", "report"):
    package = importlib.import_module(f"diptych.{room}")
    for module in pkgutil.walk_packages(package.__path__, f"diptych.{room}."):
        importlib.import_module(module.name)
from diptych.common.errors import DiptychError
from diptych.common.pages import render
try:
    render("report/run.html", {})
except DiptychError as error:
    print(error)
"""


def test_nothing_but_a_page_needs_jinja() -> None:
    result = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == "a page needs the package jinja2, which is not installed; try pip install jinja2"


def test_the_error_is_one_that_people_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(DiptychError, match="needs the package jinja2"):
        page_environment()
