"""`diptych report`."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from diptych.cli.options import DataOption, DeviceOption, FeaturesOption, ImagesOption, SplitOption
from diptych.common.errors import DiptychError


def command(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")],
    data: DataOption = None,
    split: SplitOption = None,
    features: FeaturesOption = None,
    images: ImagesOption = None,
    out: Annotated[Path | None, typer.Option(help="What to write, FILE.html; RUN/report.html by default.")] = None,
    pictures: Annotated[
        int | None, typer.Option(min=2, help="Pictures looked at, drawn; by default what a minute or two allow.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Draws the examples and the points of the map.")] = 0,
    device: DeviceOption = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print what was made as one JSON object.")] = False,
) -> None:
    """A run on one page: curves, recall beside the paper's, examples, failures, and what the model shows of itself."""
    from diptych.cli.given_data import GivenData, read_given
    from diptych.report.report import Given, make_report
    from diptych.report.run_folder import read_run

    read_run(run)
    path = out or run / "report.html"
    if path.suffix.lower() not in (".html", ".htm"):
        raise DiptychError(f"--out: {path} is not known; expected a name that ends in .html")
    given = Given(split=split)
    if data is not None:
        read = read_given(GivenData(data, split, features, images), [str(run)])
        given = Given(read.collection, read.split, tuple(f"{note[0].upper()}{note[1:]}." for note in read.notes))
    elif features is not None or images is not None:
        raise DiptychError("--features and --images belong to --data, which is not given")
    report = make_report(run, given, pictures=pictures, seed=seed, device=device)
    report.write(path)
    for note in report.notes:
        print(f"note: {note}", file=sys.stderr)
    if as_json:
        told = {
            "report": str(path),
            "run": report.title,
            "bytes": path.stat().st_size,
            "sections": list(report.sections),
            "pictures": report.pictures,
            "sentences": report.sentences,
            "drawn_from": report.whole,
            "figures": report.figures,
            "notes": list(report.notes),
        }
        print(json.dumps(told, ensure_ascii=False))
        return
    print(path)
