"""`diptych embed`."""

import json
import sys
import warnings
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from diptych.cli.completion import complete_model
from diptych.cli.options import DeviceOption
from diptych.common.errors import DiptychError

if TYPE_CHECKING:
    from diptych.search.filling.embed import EmbedReport
    from diptych.search.filling.embed_ray import RayPool

RAY = "With --engine ray"


def command(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE ...",
            help="Folders, pictures, tars, parquet files, patterns of them, or URLs such as s3://bucket/shards.",
        ),
    ],
    out: Annotated[str, typer.Option(metavar="DIR", help="The folder or URL for the parts; all machines share it.")],
    model: Annotated[
        str,
        typer.Option(
            autocompletion=complete_model, help="`default`, a run, a matcher's folder, or a CLIP or SigLIP model."
        ),
    ] = "default",
    what: Annotated[Literal["pictures", "sentences", "both"], typer.Option(help="What to embed.")] = "pictures",
    exclude: Annotated[list[str] | None, typer.Option(help="Leave out names or paths like this; repeatable.")] = None,
    hidden: Annotated[bool, typer.Option("--hidden", help="Also hidden files and folders.")] = False,
    part: Annotated[
        int, typer.Option(min=1, help="Pictures, or rows of a parquet file, of a part; a tar is one part.")
    ] = 4096,
    keep_locals: Annotated[
        str | None, typer.Option(help="A re-ranking model: keep what it needs of each picture, too.")
    ] = None,
    engine: Annotated[
        Literal["plain", "ray"], typer.Option(help="This process, or a pool of workers of Ray Data.")
    ] = "plain",
    device: DeviceOption = "auto",
    batch_size: Annotated[int | None, typer.Option(min=1, help="Pictures a step.")] = None,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Threads that decode, of a process; one a core by default.")
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(min=1, rich_help_panel=RAY, help="How many; one a GPU, or without GPUs one a machine."),
    ] = None,
    gpus_per_worker: Annotated[
        float | None, typer.Option(min=0, rich_help_panel=RAY, help="1 where there are any; 0.5 for two on one GPU.")
    ] = None,
    ray_address: Annotated[
        str | None,
        typer.Option(rich_help_panel=RAY, help="A cluster that runs, `auto` or host:port; else one is started here."),
    ] = None,
    retry: Annotated[
        bool, typer.Option("--retry", help="Make parts again of which something could not be read.")
    ] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with status 1 if anything cannot be read.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the outcome as one JSON object.")] = False,
) -> None:
    """Embed pictures in bulk into parquet parts, which `diptych index --import DIR` reads; after a kill it goes on."""
    from PIL import Image

    from diptych.search.filling.embed import embed
    from diptych.search.filling.walk import Choice

    warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)
    warnings.filterwarnings("ignore", category=UserWarning, module="PIL")  # broken EXIF blocks say nothing
    report = embed(
        sources,
        out,
        model,
        choice=Choice(what, tuple(exclude or ()), hidden, archives=True),
        part=part,
        keep_locals=keep_locals,
        device="cpu" if engine == "ray" else device,
        batch_size=batch_size,
        threads=threads,
        pool=_pool(engine, device, workers, gpus_per_worker, ray_address),
        retry=retry,
    )
    _tell(report, as_json)
    if strict and (report.bad or report.problems):
        raise typer.Exit(1)


def _pool(engine: str, device: str, workers: int | None, gpus: float | None, address: str | None) -> "RayPool | None":
    """The workers of Ray, or None for this process; an option that means nothing here is an error."""
    from diptych.search.filling.embed_ray import RayPool

    if engine == "ray":
        if device not in ("auto", "cpu"):
            raise DiptychError("--device: Ray gives each worker its GPUs; see --gpus-per-worker")
        return RayPool(workers, 0.0 if device == "cpu" else gpus, address)
    given = {"--workers": workers, "--gpus-per-worker": gpus, "--ray-address": address}
    lost = next((name for name, value in given.items() if value is not None), None)
    if lost is not None:
        raise DiptychError(f"{lost}: is for --engine ray")
    return None


def _tell(report: "EmbedReport", as_json: bool, most: int = 20) -> None:
    from diptych.search.filling.skipped import skipped_line

    for problem in report.problems[:most]:
        print(problem, file=sys.stderr)
    if len(report.problems) > most:
        print(f"… and {len(report.problems) - most} more", file=sys.stderr)
    if report.skipped:
        print(f"note: {skipped_line(report.skipped)}", file=sys.stderr)
    if report.bad:
        things = "1 thing" if report.bad == 1 else f"{report.bad:,} things"
        print(f"note: {things} could not be read; see bad-*.jsonl in {report.folder}", file=sys.stderr)
    if as_json:
        print(json.dumps(_outcome(report), ensure_ascii=False))
        return
    parts = f"all {report.parts:,} parts are there" if report.parts > 1 else "the one part is there"
    if report.speed is None:
        print(f"{report.folder}: nothing to do; {parts}")
        return
    before = f", {report.before:,} of them before" if report.before else ""
    print(f"{report.folder}: {report.entries:,} embedded in {report.seconds:.1f} s; {parts}{before}")
    if report.speed.share is not None:
        rates = f"{report.speed.rate:,.1f} a second in all, {report.speed.model_rate:,.1f} by the model alone"
        print(f"{rates}: {report.speed.share:.0%}")


def _outcome(report: "EmbedReport") -> dict[str, Any]:
    speed = report.speed
    return {
        "folder": report.folder,
        "model": report.model,
        "parts": report.parts,
        "before": report.before,
        "embedded": report.entries,
        "bad": report.bad,
        "seconds": round(report.seconds, 3),
        "rate": None if speed is None else speed.rate,
        "model_rate": None if speed is None else speed.model_rate,
        "share": None if speed is None else speed.share,
        "problems": [str(problem) for problem in report.problems],
        "skipped": {kind.ending: kind.count for kind in report.skipped},
    }
