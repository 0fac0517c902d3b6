"""Notebooks as pages: their text as it is, their code, and what each cell showed when it was run last."""

import json
from typing import Any

from myst_parser.parsers.sphinx_ import MystParser

FENCE = "``````"  # longer than any inside a cell


def to_markdown(notebook: dict[str, Any]) -> str:
    """A notebook's cells, one under another, as MyST reads them."""
    parts: list[str] = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] != "code":
            parts.append(source)
            continue
        parts.append(f"{FENCE}python\n{source}\n{FENCE}")
        for output in cell["outputs"]:
            data = output.get("data", {})
            if "text/html" in data:
                parts.append(f"{FENCE}{{raw}} html\n{''.join(data['text/html'])}\n{FENCE}")
            else:
                shown = "".join(output.get("text", data.get("text/plain", ""))).rstrip("\n")
                parts.append(f"{FENCE}text\n{shown}\n{FENCE}")
    return "\n\n".join(parts) + "\n"


class NotebookParser(MystParser):
    """A notebook in place of a page of Markdown."""

    supported = ("notebook",)

    def parse(self, inputstring: str, document: Any) -> None:
        """Called by Sphinx with the file's text."""
        super().parse(to_markdown(json.loads(inputstring)), document)


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.add_source_suffix(".ipynb", "notebook")
    app.add_source_parser(NotebookParser)
