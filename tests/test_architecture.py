"""Imports go down the list of rooms only, a class has a name of its own, and `import diptych` stays light."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from diptych.cli.main import COMMANDS, module_of

ROOMS = [
    "cli", "web", "search", "report", "explain", "training",
    "evaluation", "scoring", "matchers", "encoders", "data", "common",
]  # fmt: skip
# The rooms of `search/`; what lies in `search/` itself is above them. Those of one line do not import each other.
SEARCH_ROOMS = [["asking", "filling"], ["models"], ["stores"]]
# What rooms above `matchers/` know of it: the interface and its table, no paper. Only the command knows converting.
INTERFACE = {"base", "bounded", "catalog", "hubs", "kept", "layout", "view"}
CONVERTS = "cli/convert.py"
SOURCE = Path(__file__).parent.parent / "src" / "diptych"


def modules(path: Path) -> set[str]:
    """Everything of the package that a file names in its imports: modules, and what may be modules."""
    named = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            named |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            named |= {alias.name for alias in node.names}
    return {name for name in named if name.startswith("diptych.")}


def imports(path: Path) -> set[str]:
    return {name.split(".")[1] for name in modules(path)}


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


def imports_of_search(path: Path) -> set[str]:
    return {name.split(".")[2] for name in modules(path) if name.startswith("diptych.search.")}


def test_every_room_of_search_is_in_the_list() -> None:
    folders = {p.name for p in (SOURCE / "search").iterdir() if (p / "__init__.py").exists()}
    assert folders == {room for line in SEARCH_ROOMS for room in line}


@pytest.mark.parametrize(("room", "line"), [(room, i) for i, line in enumerate(SEARCH_ROOMS) for room in line])
def test_imports_within_search_go_down(room: str, line: int) -> None:
    allowed = {room} | {below for lower in SEARCH_ROOMS[line + 1 :] for below in lower}
    wrong = [
        f"{path.relative_to(SOURCE)} imports {other}"
        for path in (SOURCE / "search" / room).rglob("*.py")
        for other in imports_of_search(path) - allowed
    ]
    assert wrong == []


def test_a_class_name_stands_for_one_class() -> None:
    places: dict[str, list[str]] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(f"{path.relative_to(SOURCE)}:{node.lineno}")
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


def files_above(room: str) -> list[Path]:
    return sorted(path for above in ROOMS[: ROOMS.index(room)] for path in (SOURCE / above).rglob("*.py"))


def classes(*paths: Path) -> set[str]:
    return {n.name for path in paths for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.ClassDef)}


def test_above_matchers_only_its_interface_is_known() -> None:
    wrong = []
    for path in files_above("matchers"):
        allowed = INTERFACE | {"convert"} if path == SOURCE / CONVERTS else INTERFACE
        named = {name.split(".")[2] for name in modules(path) if name.startswith("diptych.matchers.")}
        wrong += [f"{path.relative_to(SOURCE)} imports matchers/{other}" for other in sorted(named - allowed)]
    assert wrong == []


def test_above_matchers_nothing_asks_which_encoder_or_matcher_it_is() -> None:
    # A room above asks the matcher what it wants to know; an encoder is the matcher's own affair.
    encoder_files = [SOURCE / "encoders" / f"{name}.py" for name in ("images", "texts", "towers", "backbones")]
    encoders = {name for name in classes(*encoder_files) if name.endswith(("Encoder", "Tower"))}
    kinds = classes(*encoder_files, *(SOURCE / "matchers").glob("*.py")) - classes(SOURCE / "matchers" / "kept.py")
    assert {"FeatureEncoder", "TextTower"} <= encoders
    assert {"GRUConfig", "DivE", "CAMPConfig"} <= kinds
    wrong = []
    for path in files_above("matchers"):
        for node in ast.walk(ast.parse(path.read_text())):
            is_check = isinstance(node, ast.Call) and ast.unparse(node.func) in ("isinstance", "issubclass")
            forbidden = kinds if is_check else encoders if isinstance(node, ast.Name | ast.alias) else set()
            within = node.args[1] if is_check else node
            names = {n.id if isinstance(n, ast.Name) else getattr(n, "name", "") for n in ast.walk(within)}
            wrong += [f"{path.relative_to(SOURCE)}: {name}" for name in sorted(names & forbidden)]
    assert wrong == []


@pytest.mark.parametrize("path", sorted((SOURCE / "cli").glob("*.py")), ids=lambda path: path.stem)
def test_no_command_imports_another(path: Path) -> None:
    assert modules(path) & {module_of(name) for name in COMMANDS} == set()


@pytest.mark.parametrize("path", sorted((SOURCE / "web" / "service").glob("*.py")), ids=lambda path: path.stem)
def test_what_the_server_does_knows_nothing_of_how_it_is_asked(path: Path) -> None:
    above = ("app", "middleware", "page", "responses", "routers", "run")
    assert {name for name in modules(path) if name.startswith(tuple(f"diptych.web.{up}" for up in above))} == set()


def test_importing_diptych_loads_nothing_heavy() -> None:
    code = "import sys, diptych; print([m for m in ('torch', 'numpy', 'transformers', 'PIL') if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
