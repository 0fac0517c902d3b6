"""Folders: where a run keeps its evaluations."""

from pathlib import Path

from diptych.common.errors import DiptychError
from diptych.evaluation.result import Evaluation


def evaluations_folder(run: str | Path) -> Path | None:
    """Where a run's evaluations are kept; none for a model of the hub."""
    return Path(run) / "evaluations" if Path(run).is_dir() else None


def run_names(runs: list[str]) -> list[str]:
    """The shortest endings of the runs' paths that tell them apart; a run that comes twice is numbered."""
    paths = [Path(run).parts for run in runs]
    names = [str(Path(*parts[-1:])) for parts in paths]
    for length in range(2, max(map(len, paths), default=1) + 1):
        names = [
            str(Path(*parts[-length:])) if names.count(name) > 1 else name
            for parts, name in zip(paths, names, strict=True)
        ]
    return [f"{name} ({names[: i + 1].count(name)})" if names.count(name) > 1 else name for i, name in enumerate(names)]


def saved_evaluations(run: str | Path) -> dict[str, Path]:
    """The evaluations that a run has, by name (`coco-5k-test`); a path to one such file is a run with just that one."""
    path = Path(run)
    if path.suffix == ".json" and path.is_file():
        return {path.stem: path}
    folder = evaluations_folder(run)
    if folder is None:
        raise DiptychError("no such run", where=run)
    files = {file.stem: file for file in sorted(folder.glob("*.json"))}
    if not files:
        raise DiptychError(f"holds no evaluations; run `diptych evaluate {run}` first", where=run)
    return files


def pooled_names(runs: list[str]) -> list[str]:
    """The runs' names; several seeds separated by commas go by the first one's, and how many more there are."""
    names = run_names([run if len(seeds_of(run)) == 1 or Path(run).is_dir() else seeds_of(run)[0] for run in runs])
    more = [0 if Path(run).is_dir() else len(seeds_of(run)) - 1 for run in runs]
    return [f"{name} and {count} more" if count else name for name, count in zip(names, more, strict=True)]


def seeds_of(run: str) -> list[str]:
    """The runs that an argument stands for: several separated by commas, or the `seed-*` folders in a folder."""
    if "," in run and not Path(run).exists():
        return [part for part in run.split(",") if part]
    folder = Path(run)
    if folder.is_dir() and not (folder / "evaluations").is_dir():
        found = [path for path in folder.glob("seed-*") if path.is_dir()]
        if found:
            return [str(path) for path in sorted(found, key=lambda path: (len(path.name), path.name))]
    return [run]


def load_evaluations(runs: list[str], protocol: str | None = None, split: str | None = None) -> list[Evaluation]:
    """One evaluation of each run: that of a protocol and split, or the only one that all of them have."""
    choices = []
    for run in runs:
        loaded = [Evaluation.load(path) for path in saved_evaluations(run).values()]
        fitting = [each for each in loaded if protocol in (None, each.protocol) and split in (None, each.split)]
        if not fitting:
            has = ", ".join(f"{each.protocol} on {each.split or 'all'}" for each in loaded)
            raise DiptychError(
                f"has no evaluation with {protocol or 'any protocol'} on {split or 'any split'}; it has {has}",
                where=run,
            )
        choices.append({(each.protocol, each.split): each for each in fitting})
    if all(len(each) == 1 for each in choices):
        return [next(iter(each.values())) for each in choices]
    common = sorted(set.intersection(*(set(each) for each in choices)))
    if len(common) != 1:
        what = "they share " + ", ".join(f"{p} on {s}" for p, s in common) if common else "they share none"
        raise DiptychError(f"which evaluations to compare is not clear: {what}; choose with --protocol and --split")
    return [each[common[0]] for each in choices]
