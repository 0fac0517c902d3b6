"""The papers' models on COCO: every recipe, its seeds, ablations and rates, one after another.

    python benchmarks/papers_on_coco.py --data data/coco --karpathy dataset_coco.json --minutes 25 --at-once 7
    python benchmarks/papers_on_coco.py --data data/coco --parts main --seeds 1        # the seven main rows alone
    python benchmarks/papers_on_coco.py --data data/coco --list                        # what would be done

The cells of EfficientNet-Lite2 are computed once into a file, and stay on the device for all runs. Each run's figures
go to `results/coco-grid` as soon as it is done; what is there is not done again, and a run that the time ended goes on
at its checkpoint. `docs/_make/papers_on_coco.py` makes the tables and plots of the docs from that folder.

A step of these models keeps a large GPU busy for a part of its time only, so several processes may share one
(`--at-once`). What a step and a pair take alone is measured after them, one row at a time (`--parts alone`).
"""

import argparse
import math
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

import numpy as np
import torch

from coco_alone import measure_alone
from diptych.common.device import pick_device
from diptych.common.errors import DiptychError
from diptych.common.files import write_json
from diptych.data.collection import Collection
from diptych.data.feature_file import FeatureFile
from diptych.data.feature_writer import FeatureWriter
from diptych.data.read import read_collection
from diptych.encoders.extract import describe, extract_features, load_extractor
from diptych.evaluation.depth_curve import depth_curve
from diptych.evaluation.eccv import coco_number
from diptych.evaluation.protocols import FOLD
from diptych.matchers.base import Matcher
from diptych.scoring import score_candidates
from diptych.scoring.fusion import Fusion
from diptych.training.ablation import MAIN, Trial, plan
from diptych.training.data import Splits
from diptych.training.held_features import HeldFeatures, hold, hold_splits
from diptych.training.recipe import variant_names
from diptych.training.series import SCORES, SeriesEnd, SeriesEntry, record_folder, run_series

ROOT = Path(__file__).parent.parent
BACKBONE, SIZE = "efficientnet-lite2", 224
ROWS = [  # the main rows, cheapest first
    ("vse++", MAIN), ("vse-infinity", MAIN), ("scan", MAIN), ("scan", "i2t"), ("dive", MAIN), ("camp", MAIN),
    ("mmca", MAIN),
]  # fmt: skip
FAST = ("vse-infinity", MAIN)
SLOW = [("scan", MAIN), ("scan", "i2t"), ("camp", MAIN), ("mmca", MAIN)]
DEPTHS = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0]
FUSIONS: list[Fusion] = ["replace", "sum", "rrf"]
PARTS = ["main", "alone", "rerank", "ablations", "rates", "longer"]
TRIALS = ["main", "ablations", "rates", "longer"]  # of the parts, those that several processes share
QUERIES = 20  # sentences whose second stage is timed


def main() -> None:
    args = arguments()
    until = None if args.minutes is None else time.monotonic() + 60 * args.minutes
    first, others, rest = entries(args)
    every, splits = [*(first if "main" in args.parts else []), *others, *rest], None
    if args.list:
        for entry in every:
            print(f"{'done' if is_done(args, entry) else 'to do':6}{entry.name}")
        return
    device, parts = pick_device(args.device), read_parts(args)
    if args.shared > 1 and device.type == "cuda":
        with torch.cuda.device(device):
            torch.cuda.set_per_process_memory_fraction(1 / args.shared)  # scoring takes what is free, and all ask
    if args.at_once > 1 and sum(not is_done(args, entry) for entry in every) > 1:
        prepare(args, parts, device)  # once, before they all want it
        failed = in_processes(args, until)
    else:
        splits = read_splits(args, parts, device)
        end = run_series(every, args.results, splits, args.device, until, args.fold, args.shared)
        failed = list(end.failed)
    after = {"alone", "rerank"} & set(args.parts)
    left = sum(not is_done(args, entry) for entry in every)
    if after and not all(is_done(args, entry) for entry in first):
        print(f"{' and '.join(sorted(after))}: not before the main rows with the first seed are done")
        left += len(after)
    elif after:
        splits = splits or read_splits(args, parts, device)
        failed += make_again(args, first, splits, until).failed
        if "alone" in after:
            trials = [entry.trial for entry in first]
            left += measure_alone(trials, args.results / "alone.json", splits, device, until)
        if "rerank" in after:
            left += rerank(args, first, splits, device)
    for told in failed:
        print(f"failed: {told}")
    if args.shared > 1:  # the process that began this one tells what is left
        sys.exit(1 if failed else 0)
    print(f"{left} left; the same command goes on" if left else "all done")
    sys.exit(1 if failed else 0)


def in_processes(args: argparse.Namespace, until: float | None) -> list[str]:
    """The trials by several processes of this program on one device; returns those that ended with an error."""
    parts = [part for part in args.parts if part in TRIALS]
    if not parts:
        return []
    command = [sys.executable, __file__, *sys.argv[1:], "--at-once", "1", "--shared", str(args.at_once)]
    command += ["--parts", *parts]
    threads = str(max(1, (os.cpu_count() or 1) // args.at_once))
    running = []
    for _ in range(args.at_once):
        left = [] if until is None else ["--minutes", str((until - time.monotonic()) / 60)]
        running.append(subprocess.Popen([*command, *left], env=os.environ | {"OMP_NUM_THREADS": threads}))
    try:
        ended = [one.wait() for one in running]
    finally:
        for one in running:
            one.terminate()  # those that are over do not mind
    return [f"process {number} ended with {code}" for number, code in enumerate(ended, 1) if code]


def is_done(args: argparse.Namespace, entry: SeriesEntry) -> bool:
    return (record_folder(args.results, entry.trial) / "trial.json").exists()


def entries(args: argparse.Namespace) -> tuple[list[SeriesEntry], list[SeriesEntry], list[SeriesEntry]]:
    """The main rows with the first seed, with the others, and what hangs on them."""

    def trials(kind: str, variant: str, seeds: Sequence[int]) -> list[Trial]:
        path = ROOT / "recipes" / f"{kind}-coco-grid.toml"
        return plan(path, args.runs / path.stem, [variant], seeds, tuple(args.set))

    seeds = range(args.seeds if "main" in args.parts else 1)  # the first is also what other parts are measured on
    rows = [SeriesEntry(trial, whole=True) for kind, variant in ROWS for trial in trials(kind, variant, seeds)]
    rows.sort(key=lambda entry: entry.trial.seed)
    rest = []
    for part in ("ablations", "rates", "longer"):
        for kind in dict.fromkeys(kind for kind, _ in ROWS):
            for variant in variant_names(ROOT / "recipes" / f"{kind}-coco-grid.toml"):
                if part in args.parts and part_of(variant) == part and (kind, variant) not in ROWS:
                    rest += [SeriesEntry(trial) for trial in trials(kind, variant, [0])]
    if args.only:
        rows, rest = ([e for e in some if any(word in e.name for word in args.only)] for some in (rows, rest))
    return [e for e in rows if e.trial.seed == 0], [e for e in rows if e.trial.seed > 0], rest


def part_of(variant: str) -> str:
    """Which part of the series a variant belongs to, if it is not a main row."""
    if "rate-" in variant:
        return "rates"
    return "longer" if variant.endswith("longer") else "ablations"


def read_parts(args: argparse.Namespace) -> list[Collection]:
    """Training, validation and test pictures, without features."""
    whole, counts = read_collection(args.data), {"train": args.training, "val": args.validation, "test": None}
    parts = [whole.split(name) if count is None else whole.split(name).first(count) for name, count in counts.items()]
    for name, part in zip(counts, parts, strict=True):
        if not len(part):
            raise DiptychError(f"has no pictures of the split {name!r}", where=args.data)
    return parts


def prepare(args: argparse.Namespace, parts: Sequence[Collection], device: torch.device) -> None:
    """The cells of every picture in one file."""
    if args.features.exists():
        return
    extractor = load_extractor(BACKBONE, SIZE).to(device)
    writer = FeatureWriter(args.features, describe(extractor, BACKBONE))
    items = [item for part in parts for item in part.items]
    problems = extract_features(items, extractor, writer, batch_size=args.batch)
    if problems:
        raise DiptychError(f"{len(problems)} pictures cannot be read, such as {problems[0]}", where=args.data)
    writer.finish()


def read_splits(args: argparse.Namespace, parts: Sequence[Collection], device: torch.device) -> Splits:
    """COCO with its cells on the device, the test sentences with COCO's ids where Karpathy's file is given."""
    prepare(args, parts, device)
    features = FeatureFile(args.features)
    train, validation, test = (part.with_features(features, features.rows) for part in parts)
    if args.karpathy is not None:
        test = with_coco_ids(test, read_collection(args.karpathy))
    return hold_splits(Splits(train, validation, hold(test, device)), device)


def with_coco_ids(test: Collection, karpathy: Collection) -> Collection:
    """The same pictures with the sentences of Karpathy's file, whose ids ECCV Caption and CxC go by."""
    theirs = {coco_number(item.id): item.sentences[:5] for item in karpathy.items}
    missing = next((item.id for item in test.items if coco_number(item.id) not in theirs), None)
    if missing is not None:
        raise DiptychError(f"has no picture {missing}", where=karpathy.name)
    return replace(test, items=[replace(item, sentences=theirs[coco_number(item.id)]) for item in test.items])


def make_again(
    args: argparse.Namespace, first: Sequence[SeriesEntry], splits: Splits, until: float | None
) -> SeriesEnd:
    """Train what another machine trained, whose figures are here and whose weights and scores are not."""
    gone, again = [entry for entry in first if not (entry.trial.run / SCORES).exists()], args.runs / "again"
    for entry in gone:
        (record_folder(again, entry.trial) / "trial.json").unlink(missing_ok=True)  # its scores were there once
    return run_series(gone, again, splits, args.device, until, args.fold)


def rerank(args: argparse.Namespace, first: Sequence[SeriesEntry], splits: Splits, device: torch.device) -> int:
    """What each slow model makes of the best of the fast one, fold by fold, at every depth with every fusion.

    Returns how many slow models are left for want of scores.
    """
    runs = {(entry.trial.recipe.name.removesuffix("-coco-grid"), entry.trial.variant): entry for entry in first}
    owners, left = splits.test.captions()[1], 0
    for slow in SLOW:
        path = args.results / "rerank" / f"{'-'.join(slow)}.json"
        pair = [runs[row] for row in (FAST, slow) if row in runs]
        if path.exists() or len(pair) < 2:
            continue
        if not all((entry.trial.run / SCORES).exists() for entry in pair):
            left += 1
            continue
        scores = [np.load(entry.trial.run / SCORES, mmap_mode="r") for entry in pair]
        points: dict[tuple[float, Fusion], list[dict[str, float]]] = {}
        for start in range(0, len(splits.test) // args.fold * args.fold, args.fold):
            columns = np.flatnonzero((owners >= start) & (owners < start + args.fold))
            parts = [each[start : start + args.fold][:, columns] for each in scores]
            for point in depth_curve(*parts, owners[columns] - start, DEPTHS, FUSIONS):
                points.setdefault((point.depth, point.fusion), []).append(point.figures)
        means = [
            {"depth": depth, "fusion": fusion, **{key: float(np.mean([f[key] for f in each])) for key in each[0]}}
            for (depth, fusion), each in points.items()
        ]
        seconds = second_stage_seconds(pair[1].trial, splits.test, device)
        names = {"fast": "/".join(FAST), "slow": "/".join(slow)}
        write_json(path, {**names, "fold": args.fold, "points": means, "query_seconds": seconds})
        print(f"re-ranked by {names['slow']}", file=sys.stderr)
    return left


def second_stage_seconds(trial: Trial, test: Collection, device: torch.device) -> dict[str, float]:
    """Seconds in which one sentence's best pictures are rescored, by depth: the median of some sentences."""
    matcher = Matcher.from_pretrained(trial.run / "best").to(device)
    assert isinstance(test.features, HeldFeatures)
    images = test.features.encode(matcher, test)
    texts = matcher.encode_texts(test.captions()[0][:QUERIES]).to("cpu")
    found = {}
    for depth in DEPTHS:
        places = torch.arange(math.ceil(depth * len(images))).unsqueeze(0)
        times = []
        for row in range(len(texts)):
            begun = time.perf_counter()
            score_candidates(matcher, texts[row : row + 1], images, places, "texts")
            times.append(time.perf_counter() - begun)
        found[f"{depth:g}"] = median(times[1:])
    return found


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="a folder of webdataset tars, or Karpathy's JSON")
    parser.add_argument("--features", type=Path, default=Path("data/coco-lite2.features"), help="the cells")
    parser.add_argument("--karpathy", type=Path, help="Karpathy's JSON: COCO's caption ids, for ECCV Caption and CxC")
    parser.add_argument("--runs", type=Path, default=Path("runs/coco-grid"))
    parser.add_argument("--results", type=Path, default=ROOT / "results" / "coco-grid", help="figures of the runs")
    parser.add_argument("--minutes", type=float, help="stop cleanly after so many")
    parser.add_argument("--seeds", type=int, default=3, help="of the main rows")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--only", nargs="+", help="only runs whose name holds one of these words")
    parser.add_argument("--at-once", type=int, default=1, help="processes that share the device")
    parser.add_argument("--shared", type=int, default=1, help=argparse.SUPPRESS)  # what each of them is told
    parser.add_argument("--device", default="auto")
    parser.add_argument("--batch", type=int, help="pictures that go through the backbone at once")
    parser.add_argument("--training", type=int, help="training pictures, where not all")
    parser.add_argument("--validation", type=int, default=1000, help="validation pictures")
    parser.add_argument("--fold", type=int, default=FOLD, help="test pictures in a fold")
    parser.add_argument(
        "--set", nargs="+", action="extend", default=[], metavar="KEY=VALUE", help="change every recipe"
    )
    parser.add_argument("--list", action="store_true", help="only say what is done and what is not")
    return parser.parse_args()


if __name__ == "__main__":
    try:
        main()
    except DiptychError as error:
        sys.exit(str(error))
