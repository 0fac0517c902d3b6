"""`diptych demo`."""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer


def command(
    out: Annotated[Path, typer.Option(help="The run's folder.")] = Path("runs/demo"),
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Draw scenes, train a small matcher on them, print its recall and answer a few questions: two minutes in all."""
    from diptych.evaluation.tables import evaluation_table, render
    from diptych.training.demo import run_demo

    print("drawing scenes, training a small matcher; Ctrl-C stops it, the same command goes on", file=sys.stderr)
    demo = run_demo(out)
    if demo is None:
        raise typer.Exit(130)
    if as_json:
        queries = [
            {"text": a.text, "own": a.own, "results": [asdict(found) for found in a.found]} for a in demo.answers
        ]
        shown = {"pictures": demo.pictures, "figures": demo.evaluation.figures, "queries": queries}
        print(json.dumps({**shown, "sheet": str(demo.sheet), "seconds": round(demo.seconds, 1)}, ensure_ascii=False))
        return
    print(render(evaluation_table({"demo": demo.evaluation})))
    for answer in demo.answers:
        print(f"\n“{answer.text}”")
        for found in answer.found:
            mark = " ← its own picture" if found.number == answer.own else ""
            print(f"  {found.score:.3f}  scene {found.number}: {found.caption}{mark}")
    print(f"\nthe pictures: {demo.sheet}\nthe model:    {demo.run / 'best'}\n{demo.seconds:.0f} seconds")
