"""Runs docs/notebook.ipynb from its first cell to its last, and writes it with what each cell showed.

    python docs/_make/notebook.py                     # in place, in a folder of its own that is thrown away
    python docs/_make/notebook.py --out FILE          # elsewhere; a test does so

Cells are run by plain Python: the last expression of a cell is shown as HTML where it knows how, else as text. A cell
that fails ends the run with its error.
"""

import argparse
import ast
import io
import json
import os
import tempfile
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

NOTEBOOK = Path(__file__).resolve().parent.parent / "notebook.ipynb"


def run_cell(source: str, names: dict[str, Any], number: int) -> list[dict[str, Any]]:
    """What a cell shows, as the notebook format writes it."""
    tree = ast.parse(source, f"cell {number}")
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed, outputs = io.StringIO(), list[dict[str, Any]]()
    with redirect_stdout(printed):
        exec(compile(tree, f"cell {number}", "exec"), names)
        value = None if last is None else eval(compile(ast.Expression(last.value), f"cell {number}", "eval"), names)
    if printed.getvalue():
        outputs.append({"output_type": "stream", "name": "stdout", "text": lines(printed.getvalue())})
    if value is not None:
        shown: dict[str, Any] = {"text/plain": lines(repr(value))}
        if hasattr(value, "_repr_html_"):
            shown = {"text/html": lines(value._repr_html_()), "text/plain": [f"<{type(value).__name__}>"]}
        outputs.append({"output_type": "execute_result", "execution_count": number, "data": shown, "metadata": {}})
    return outputs


def lines(text: str) -> list[str]:
    """Text as notebooks keep it."""
    return text.splitlines(keepends=True)


def run_notebook(notebook: dict[str, Any]) -> dict[str, Any]:
    """The notebook with what its cells showed, run in the folder that one is in."""
    names: dict[str, Any] = {"__name__": "__main__"}
    number = 0
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            number += 1
            cell["execution_count"] = number
            cell["outputs"] = run_cell("".join(cell["source"]), names, number)
    return notebook


def main() -> None:
    """Parse, run, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=NOTEBOOK, help="the notebook to write")
    out = parser.parse_args().out.resolve()
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            run_notebook(notebook)
        finally:
            os.chdir(before)
    out.write_text(json.dumps(notebook, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    print(out)


if __name__ == "__main__":
    main()
