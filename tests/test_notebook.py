"""The notebook of the documentation: it runs from its first cell to its last, and what it shows was run."""

import json
import os
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).parent.parent / "docs"


def code_cells(path: Path) -> list[dict[str, Any]]:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


def kinds(cell: dict[str, Any]) -> list[str]:
    return [next(iter(output.get("data", {"stream": ""}))) for output in cell["outputs"]]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The notebook, run with neither network nor cache."""
    folder = tmp_path_factory.mktemp("notebook")
    nothing = {"PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull, "PIP_FIND_LINKS": "", "PIP_EXTRA_INDEX_URL": ""}
    done = subprocess.run(
        [sys.executable, str(DOCS / "_make" / "notebook.py"), "--out", str(folder / "ran.ipynb")],
        env={**os.environ, **nothing, "XDG_CACHE_HOME": str(folder / "cache")},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder / "ran.ipynb"


def test_it_runs_without_network_and_data(ran: Path) -> None:
    cells = code_cells(ran)
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    shown = [cell for cell in cells if "text/html" in kinds(cell)]
    assert len(shown) == 3  # two searches and an explanation
    for cell in shown:
        html = "".join(cell["outputs"][-1]["data"]["text/html"])
        assert html.count('<img src="data:image/jpeg;base64,') >= 4


def test_what_it_shows_in_the_documentation_is_from_a_run(ran: Path) -> None:
    there = code_cells(DOCS / "notebook.ipynb")
    assert [cell["execution_count"] for cell in there] == list(range(1, len(there) + 1))
    # The first tells whose photographs they are, which drawn scenes do not.
    assert [kinds(cell) for cell in there][1:] == [kinds(cell) for cell in code_cells(ran)][1:]


def test_the_documentation_has_its_text_its_code_and_what_it_showed() -> None:
    spec = spec_from_file_location("notebook_page", DOCS / "_ext" / "notebook.py")
    assert spec is not None
    assert spec.loader is not None
    extension = module_from_spec(spec)
    spec.loader.exec_module(extension)
    page = extension.to_markdown(json.loads((DOCS / "notebook.ipynb").read_text(encoding="utf-8")))
    assert page.startswith("# In a notebook")
    for cell in code_cells(DOCS / "notebook.ipynb"):
        assert f"``````python\n{''.join(cell['source'])}\n``````" in page
    assert page.count("{raw} html") == 3


def test_it_stays_small() -> None:
    assert (DOCS / "notebook.ipynb").stat().st_size < 256 << 10
