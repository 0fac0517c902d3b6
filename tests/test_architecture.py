"""Imports go down the list of rooms only, and `import diptych` stays light."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOMS = [
    "cli", "web", "search", "report", "explain", "training",
    "evaluation", "scoring", "matchers", "encoders", "data", "common",
]  # fmt: skip
# The rooms of `search/`; what lies in `search/` itself is above them. Those of one line do not import each other.
SEARCH_ROOMS = [["asking", "filling"], ["models"], ["stores"]]
SOURCE = Path(__file__).parent.parent / "src" / "diptych"


def imports(path: Path, package: str = "diptych") -> set[str]:
    """The names right below a package that a file imports from, wherever in the file it does."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            names.update(f"{node.module}.{a.name}" for a in node.names)
        elif isinstance(node, ast.Import):
            names.update(a.name for a in node.names)
    depth = package.count(".") + 1
    return {name.split(".")[depth] for name in names if name.startswith(f"{package}.")}


def test_every_room_is_in_the_list() -> None:
    folders = {p.name for p in SOURCE.iterdir() if p.is_dir() and (p / "__init__.py").exists()}
    assert folders <= set(ROOMS)


@pytest.mark.parametrize("room", ROOMS)
def test_imports_go_down(room: str) -> None:
    above = set(ROOMS[: ROOMS.index(room)])
    wrong = [
        f"{path.relative_to(SOURCE)} imports {up}"
        for path in (SOURCE / room).rglob("*.py")
        for up in imports(path) & above
    ]
    assert wrong == []


def test_every_room_of_search_is_in_the_list() -> None:
    folders = {p.name for p in (SOURCE / "search").iterdir() if (p / "__init__.py").exists()}
    assert folders == {room for line in SEARCH_ROOMS for room in line}


@pytest.mark.parametrize(("room", "line"), [(room, i) for i, line in enumerate(SEARCH_ROOMS) for room in line])
def test_imports_within_search_go_down(room: str, line: int) -> None:
    allowed = {room} | {below for lower in SEARCH_ROOMS[line + 1 :] for below in lower}
    wrong = [
        f"{path.relative_to(SOURCE)} imports {other}"
        for path in (SOURCE / "search" / room).rglob("*.py")
        for other in imports(path, "diptych.search") - allowed
    ]
    assert wrong == []


def test_importing_diptych_loads_nothing_heavy() -> None:
    code = "import sys, diptych; print([m for m in ('torch', 'numpy', 'transformers', 'PIL') if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
