"""Evaluations, kept and printed."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from diptych.common.errors import DiptychError
from diptych.evaluation.published import PublishedTable
from diptych.evaluation.result import Evaluation
from diptych.evaluation.tables import evaluation_table, render


def keep(result: Evaluation, folder: Path | None) -> None:
    """Save a result with its per-query part, and say where."""
    if folder is None:
        return
    try:
        path = result.save(folder)
    except OSError as error:
        raise DiptychError(
            f"the evaluation cannot be saved there: {error}; choose another --out", where=folder
        ) from None
    print(f"saved {path}", file=sys.stderr)


def print_evaluations(
    results: dict[str, Evaluation], beside: PublishedTable | None, format: str, as_json: bool
) -> None:
    """A table, a run a row; or an object."""
    if as_json:
        print_figures({name: result.flat() for name, result in results.items()})
    else:
        print(render(evaluation_table(results, beside), format))


def print_figures(figures: Mapping[str, Mapping[str, Any]]) -> None:
    """One object: the figures of the only run, or those of each under its name."""
    shown = next(iter(figures.values())) if len(figures) == 1 else figures
    print(json.dumps(shown, ensure_ascii=False))
