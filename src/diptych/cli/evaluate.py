"""`diptych evaluate`: recall and more of runs, under a protocol; or of searching an index."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

import typer

from diptych.common.errors import DiptychError, nearest
from diptych.data.collection import Collection
from diptych.data.read import read_collection
from diptych.evaluation.result import Evaluation
from diptych.matchers.base import Matcher
from diptych.training.data import Splits, load_splits
from diptych.training.recipe import load_run_recipe


def command(
    runs: Annotated[
        list[str] | None, typer.Argument(metavar="RUN ...", help="A run folder, a model folder, or a hub name.")
    ] = None,
    protocol: Annotated[str, typer.Option(help="flickr30k, coco-1k, coco-5k, eccv, cxc or all-pairs.")] = "all-pairs",
    data: Annotated[str | None, typer.Option(help="Anything that `diptych data` reads; else the run's own.")] = None,
    split: Annotated[str | None, typer.Option(help="Which split of the data; test by default.")] = None,
    features: Annotated[Path | None, typer.Option(help="Local features of the pictures in --data.")] = None,
    images: Annotated[Path | None, typer.Option(help="The pictures of --data, where it does not say.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1; a GPU where there is one.")] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Pictures encoded at once.")] = 64,
    ensemble: Annotated[bool, typer.Option("--ensemble", help="Evaluate the mean of the runs' scores.")] = False,
    beside: Annotated[
        str | None, typer.Option(metavar="TABLE", help="A published table, such as vse-infinity/table-4.")
    ] = None,
    rerank: Annotated[
        str | None, typer.Option(metavar="RUN", help="A slower run that rescores the best of each query.")
    ] = None,
    depth: Annotated[
        float | None,
        typer.Option(
            help="With --rerank, the part that is rescored, 0.1; of an index how many, 100.", show_default=False
        ),
    ] = None,
    near_misses: Annotated[
        int, typer.Option(min=0, help="So many drawn near-miss pairs besides, for a run on drawn scenes.")
    ] = 0,
    out: Annotated[
        Path | None, typer.Option(help="Where the results go; RUN/evaluations by default, not kept for an ensemble.")
    ] = None,
    format: Annotated[str, typer.Option(help="text, markdown, latex or json.")] = "text",
    index: Annotated[
        str | None, typer.Option("--index", "--store", help="Evaluate searching this index, in place of runs.")
    ] = None,
    queries: Annotated[
        Path | None, typer.Option(help="With --index, a text file of sentences to search with; else its own.")
    ] = None,
    top: Annotated[
        int | None, typer.Option(min=1, help="With --index, results a query; 10.", show_default=False)
    ] = None,
    fusion: Annotated[
        Literal["replace", "sum", "rrf"] | None,
        typer.Option(help="With --rerank, how both scores become one; sum.", show_default=False),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object of figures.")] = False,
) -> None:
    """Recall and more of a run, under a protocol; or of searching an index: against exact search, and how quick."""
    if index is not None:
        others: dict[str, object] = {
            "RUN": runs,
            "--data": data,
            "--split": split,
            "--features": features,
            "--images": images,
        }
        others |= {
            "--protocol": protocol != "all-pairs",
            "--format": format != "text",
            "--batch-size": batch_size != 64,
        }
        others |= {"--ensemble": ensemble, "--beside": beside, "--near-misses": near_misses, "--out": out}
        _none_of(others, "does not belong to --index, which is evaluated by itself")
        evaluate_an_index(index, queries, top or 10, rerank, depth, fusion, device, as_json)
        return
    _none_of({"--queries": queries, "--top": top}, "belongs to --index, which is not given")
    if rerank is None:
        _none_of({"--fusion": fusion, "--depth": depth}, "belongs to --rerank, which is not given")
    elif near_misses:
        raise DiptychError("--near-misses: are judged by one model, and not with --rerank")
    if not runs:
        raise DiptychError("expected a run to evaluate, or --index FILE")
    depth = 0.1 if depth is None else depth
    from diptych.evaluation.evaluate import evaluate_ensemble, evaluate_matcher
    from diptych.evaluation.protocols import check_protocol
    from diptych.evaluation.published import published
    from diptych.evaluation.rerank import evaluate_reranked
    from diptych.evaluation.runs import evaluations_folder, run_names
    from diptych.evaluation.tables import check_format, evaluation_table, render

    check_protocol(protocol)
    check_format(format)
    table = None if beside is None else published(beside)
    if rerank is not None and (ensemble or protocol != "all-pairs"):
        raise DiptychError("--rerank: is judged on all pairs of the split, and not with --ensemble")
    if out is not None and len(runs) > 1 and not ensemble:
        raise DiptychError("--out: several runs would overwrite each other there; evaluate them one by one")
    results: dict[str, Evaluation] = {}
    if ensemble:
        collection, source, chosen, notes = collection_of(runs, protocol, data, split, features, images)
        matchers = [load(run, device) for run in runs]
        found = evaluate_ensemble(matchers, collection, protocol, batch_size)
        name = " + ".join(run_names(runs))
        results[name] = found.described(model=name, data=source, split=chosen, notes=notes)
        keep(results[name], out)
    else:
        for run, name in zip(runs, run_names(runs), strict=True):
            collection, source, chosen, notes = collection_of([run], protocol, data, split, features, images)
            matcher = load(run, device)
            if rerank is not None:
                found = evaluate_reranked(matcher, load(rerank, device), collection, depth, batch_size, fusion or "sum")
                told = f"the top {100 * depth:g} % rescored by {rerank}, {fusion or 'sum'}"
                name, notes = f"{name}, re-ranked", [*notes, told]
                results[name] = found.described(model=run, data=source, split=chosen, notes=notes)
                keep(results[name], out)
                continue
            found = evaluate_matcher(matcher, collection, protocol, batch_size)
            if near_misses:
                found = found.with_figures(near_miss_figures_of(run, matcher, near_misses))
            results[name] = found.described(model=run, data=source, split=chosen, notes=notes)
            keep(results[name], out or evaluations_folder(run))
    if as_json:
        shown = {name: result.flat() for name, result in results.items()}
        print(json.dumps(next(iter(shown.values())) if len(shown) == 1 else shown, ensure_ascii=False))
        return
    print(render(evaluation_table(results, table), format))


def _none_of(options: Mapping[str, object], why: str) -> None:
    """Refuse options that would not be heeded."""
    for name, value in options.items():
        if value:
            raise DiptychError(f"{name}: {why}")


def evaluate_an_index(
    address: str,
    queries: Path | None,
    top: int,
    rerank: str | None,
    depth: float | None,
    fusion: Literal["replace", "sum", "rrf"] | None,
    device: str | None,
    as_json: bool,
) -> None:
    """Print recall against exact search, latency, and what re-ranking adds."""
    from diptych.search.asking.rerank import Rerank
    from diptych.search.evaluate_search import describe, evaluate_index

    if rerank is None:
        _none_of({"--depth": depth, "--fusion": fusion}, "belongs to --rerank, which is not given")
    second = None
    if rerank is not None:
        many = 100 if depth is None else depth
        if many != int(many):
            raise DiptychError(f"--depth: of an index, expected how many results are rescored, got {many:g}")
        second = Rerank(rerank, int(many), fusion or "sum")
    figures = evaluate_index(address, queries, top=top, rerank=second, device=device)
    print(json.dumps(figures, ensure_ascii=False) if as_json else describe(figures))


def near_miss_figures_of(run: str, matcher: Matcher, count: int) -> dict[str, float]:
    """How well a run on drawn scenes tells right from almost right, on pairs that no recipe trains on."""
    from diptych.data.scenes import near_miss_set
    from diptych.evaluation.near_misses import near_miss_figures

    data = load_run_recipe(Path(run)).data if (Path(run) / "recipe.json").is_file() else None
    if data is None or data.kind != "scenes":
        raise DiptychError(f"{run}: --near-misses are drawn scenes, and this is no run on drawn scenes")
    regions = "boxes" if data.regions == "none" else data.regions
    return near_miss_figures(matcher, near_miss_set(count, seed=data.seed + 1), regions)


def load(run: str, device: str | None) -> Matcher:
    """A run's best model, on a device."""
    import torch

    from diptych.evaluation.runs import model_folder

    chosen = device or ("cuda" if torch.cuda.is_available() else "cpu")
    matcher = Matcher.from_pretrained(model_folder(run))
    try:
        return matcher.to(chosen)
    except (RuntimeError, AssertionError) as error:
        raise DiptychError(f"--device: {chosen!r} cannot be used: {str(error).splitlines()[0]}") from None


def keep(result: Evaluation, folder: Path | None) -> None:
    """Save a result with its per-query part, and say where."""
    if folder is None:
        return
    try:
        path = result.save(folder)
    except OSError as error:
        raise DiptychError(f"{folder}: the evaluation cannot be saved there: {error}; choose another --out") from None
    print(f"saved {path}", file=sys.stderr)


def collection_of(
    runs: list[str], protocol: str, data: str | None, split: str | None, features: Path | None, images: Path | None
) -> tuple[Collection, str, str, list[str]]:
    """What to evaluate on, where it is from, its split, and notes on pictures that the runs were trained on."""
    from diptych.evaluation.overlap import trained_on

    trained = {run: splits for run in runs if (splits := splits_of(run, required=data is None)) is not None}
    if data is not None:
        whole = read_collection(data, features=features, images=images)
        collection, chosen = choose_split(whole, split, protocol)
        source = data
    else:
        if features is not None or images is not None:
            raise DiptychError("--features and --images belong to --data, which is not given")
        name, splits = next(iter(trained.items()))
        collection, chosen = own_split(splits, split)
        source = f"the data of {name}"
    notes = []
    for run, splits in trained.items():
        seen = trained_on(splits.train, collection)
        if seen:
            notes.append(
                f"{run} was trained on {len(seen)} of these {len(collection)} pictures, such as {seen[0]}: "
                "its figures are too high"
            )
    for note in notes:
        print(f"warning: {note}", file=sys.stderr)
    return collection, source, chosen, notes


def splits_of(run: str, required: bool) -> Splits | None:
    """The data that a run was trained and judged on; none where it is not a run, or its data is not at hand."""
    if not (Path(run) / "recipe.json").is_file():
        if required:
            raise DiptychError(f"{run}: has no recipe.json that names its data; give --data")
        return None
    recipe = load_run_recipe(Path(run))
    if not required and recipe.data.kind == "scenes":
        return None  # drawn pictures are in no dataset of photographs
    try:
        return load_splits(recipe.data)
    except DiptychError as error:
        if required:
            raise
        print(f"note: whether {run} was trained on these pictures cannot be checked: {error}", file=sys.stderr)
        return None


def own_split(splits: Splits, split: str | None) -> tuple[Collection, str]:
    """One of the three parts of a run's own data."""
    parts = {"train": splits.train, "val": splits.validation, "validation": splits.validation, "test": splits.test}
    wanted = split or "test"
    if wanted not in parts:
        raise DiptychError(f"--split: {wanted!r} does not exist; {nearest(wanted, list(parts))}")
    if not len(parts[wanted]):
        raise DiptychError(f"--split: the run's data has no pictures in its {wanted} split; give another, or --data")
    return parts[wanted], "val" if wanted == "validation" else wanted


def choose_split(whole: Collection, split: str | None, protocol: str) -> tuple[Collection, str]:
    """The named split; else `test`, or the only one. Of COCO's precomputed folders, `testall` is the whole 5K."""
    names = list(whole.splits)
    usual = ["testall", "test"] if protocol in ("coco-1k", "coco-5k", "eccv", "cxc") else ["test"]
    wanted = split or next((name for name in usual if name in names), names[0] if len(names) == 1 else None)
    if wanted is None:
        raise DiptychError(f"{whole.name}: has no test split; choose one with --split: {', '.join(names)}")
    if wanted not in names:
        raise DiptychError(f"{whole.name}: has no split {wanted!r}; {nearest(wanted, names)}")
    return whole.split(wanted), wanted
