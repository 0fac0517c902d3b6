"""What `diptych evaluate-near-misses` does with --data: captions with one word changed, and statements."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from diptych.cli.given_data import GivenData, read_given
from diptych.cli.models import load_model
from diptych.cli.printing import print_figures
from diptych.data.collection import Collection
from diptych.data.statements import read_statements
from diptych.evaluation.real_near_misses import RealNearMisses, foil_table, real_near_misses, statement_table
from diptych.evaluation.runs import run_names
from diptych.evaluation.tables import render


def print_real_near_misses(
    runs: list[str],
    given: GivenData,
    statements: Path | None,
    pictures: int | None,
    device: str,
    batch_size: int,
    format: str,
    as_json: bool,
) -> None:
    """Judge runs one after the other, and print their figures."""
    told = [] if statements is None else read_statements(statements)
    results: dict[str, RealNearMisses] = {}
    title = ""
    for run, name in zip(runs, run_names(runs), strict=True):
        read = read_given(given, [run])
        chosen = _some(read.collection, pictures)
        results[name] = real_near_misses(load_model(run, device), chosen, told, batch_size=batch_size)
        title = f"near misses, {chosen.name}, {read.split} split"
    if as_json:
        print_figures({name: result.flat() for name, result in results.items()})
        return
    tables = []
    if any(result.foils for result in results.values()):
        tables.append(foil_table(results, f"{title}: captions with one word changed"))
    if any(result.statements for result in results.values()):
        tables.append(statement_table(results, f"{title}: statements, true and false"))
    if format == "json":  # one document: the records of either table hold all figures
        tables = [replace(tables[0], title=title)]
    print("\n\n".join(render(table, format) for table in tables))


def _some(collection: Collection, pictures: int | None) -> Collection:
    """Some of the pictures, drawn; all where no number is said."""
    if pictures is None or pictures >= len(collection):
        return collection
    rows = np.sort(np.random.default_rng(0).permutation(len(collection))[:pictures])
    return replace(collection, items=[collection.items[row] for row in rows])
