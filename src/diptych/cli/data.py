"""`diptych data`: what a dataset holds, and everything that is wrong with it."""

import json
from dataclasses import replace
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from diptych.data.check import check
from diptych.data.read import gather
from diptych.data.readers.faults import Faults
from diptych.data.summary import Spread, Summary, summarise


def command(
    path: Annotated[str, typer.Argument(help="A file or folder of any known format, or a Hugging Face dataset.")],
    images: Annotated[str | None, typer.Option(help="Where the pictures are: a folder, a tar or tars.")] = None,
    features: Annotated[str | None, typer.Option(help="Local features of the pictures, of any format.")] = None,
    captions: Annotated[str | None, typer.Option(help="A captions file; it must agree with PATH's own.")] = None,
    split: Annotated[str | None, typer.Option(help="Look at one split only.")] = None,
    dev_limit: Annotated[int | None, typer.Option(min=1, help="Cut the validation split to its first N.")] = None,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Go on without what is bad, and list it.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Decode no pictures and scan no features.")] = False,
    sample: Annotated[int | None, typer.Option(min=1, help="Decode and scan only N items, evenly spread.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Say what a dataset holds: counts, splits, captions, features, three examples, and every problem.

    The exit status is 1 where there are problems, unless --skip-bad accepts them.
    """
    faults = Faults(go_on=True)
    collection = gather(path, faults, images, features, captions, split, dev_limit)
    checked = check(collection, faults, 0 if quick else sample)
    summary = summarise(replace(collection, items=checked.good, problems=tuple(faults.problems)), checked)
    if as_json:
        print(json.dumps(summary.as_json(), ensure_ascii=False))
    else:
        show(summary, Console(), quick)
    if summary.problems and not skip_bad:
        raise typer.Exit(1)


def show(summary: Summary, console: Console, quick: bool) -> None:
    """Print a summary for people."""
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="bold")
    facts.add_column(overflow="fold")
    for name, value in _facts(summary, quick):
        facts.add_row(name, escape(value))
    console.print(facts)
    if len(summary.splits) > 1 or "all" not in summary.splits:
        table = Table("split", "pictures", "captions", title_justify="left")
        for name, count in summary.splits.items():
            table.add_row(escape(name), f"{count.pictures:,}", f"{count.captions:,}")
        console.print(table)
    for example in summary.examples:
        console.print(
            f"\n[bold]{escape(example.id)}[/bold]  {escape(example.split)}  {escape(example.path or '')}",
            soft_wrap=True,
        )
        for text in example.captions:
            console.print(f"  {escape(text)}", highlight=False, soft_wrap=True)
    console.print()
    if not summary.problems:
        console.print("[green]no problems[/green]")
        return
    console.print(f"[red]{len(summary.problems):,} problem{'s' * (len(summary.problems) > 1)}[/red]")
    for problem in summary.problems:
        console.print(f"  {escape(str(problem))}", highlight=False, soft_wrap=True)


def _facts(summary: Summary, quick: bool) -> list[tuple[str, str]]:
    facts = [
        ("name", summary.name),
        ("format", summary.format),
        ("pictures", f"{summary.pictures:,}"),
        ("captions", f"{summary.captions:,}{_each(summary)}"),
    ]
    if summary.words_per_caption is not None:
        length = f"{_range(summary.words_per_caption)} words; {summary.different_words:,} different words"
        facts.append(("caption length", length))
    if summary.restval:
        facts.append(("restval", f"{summary.restval:,} pictures of the train split"))
    files = summary.picture_files
    if files.width is not None and files.height is not None:
        looked = "" if files.decoded == files.files else f" ({files.decoded:,} decoded)"
        sizes = f"width {_range(files.width)}, height {_range(files.height)} pixels"
        facts.append(("picture files", f"{files.files:,}{looked}: {sizes}"))
    else:
        facts.append(("picture files", f"{files.files:,}{' (none decoded)' if quick and files.files else ''}"))
    features = summary.features
    if features is None:
        facts.append(("features", "none"))
        return facts
    facts.append(("features", f"{features.rows:,} rows of dimension {features.dim:,}"))
    if features.regions is not None:
        facts.append(("regions", f"{_range(features.regions)} a picture"))
        facts.append(("boxes", f"{features.with_boxes:,} of {features.looked_at:,} pictures have them"))
    return facts


def _each(summary: Summary) -> str:
    if not summary.captions:
        return ""
    counts = summary.captions_per_picture
    if len(counts) == 1:
        return f", {next(iter(counts))} a picture"
    listed = ", ".join(f"{number}: {pictures:,}" for number, pictures in counts.items())
    return f"; pictures by number of captions: {listed}"


def _range(numbers: Spread) -> str:
    if numbers.least == numbers.most:
        return f"{numbers.least:g}"
    return f"{numbers.least:g} to {numbers.most:g} (median {numbers.median:g}, mean {numbers.mean:.1f})"
