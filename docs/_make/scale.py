"""What many pictures take, by arithmetic from measured figures: the tables of docs/scale.md.

    python docs/_make/scale.py
    python docs/_make/scale.py --gpu-hour 2.5 --machine-hour 1.8 --memory 512

Every figure in `Measured` was seen in a run that the documentation names; prices and machines are assumptions, and are
options here. Nothing else is guessed: what was not measured at a size follows in proportion.
"""

import argparse
import math
from dataclasses import dataclass

SIZES = (10**6, 10**8, 10**9)
HOUR, MONTH = 3600, 730
GB = 10**9


@dataclass(frozen=True)
class Measured:
    """What was measured, and where it stands."""

    gpu_pictures: float = 256 / 0.103  # a second while training on one H200, gradients and all (docs/default-model.md)
    core_seconds: float = 0.0164  # of one core for a picture, from its file to its vector (docs/searching.md)
    camp_pairs: float = 428_000  # a second on one H200, candidates picked out first (docs/scoring.md)
    row: float = 278  # bytes beside the two copies of its vectors, in SQLite and mapped beside it (docs/million.md)


@dataclass(frozen=True)
class Model:
    """What a model keeps of a picture: `vectors` of `dim` numbers to be searched, `locals` numbers for re-ranking."""

    name: str
    vectors: int
    dim: int
    locals: int = 0


MODELS = (
    Model("VSE∞, one vector of 1,024", 1, 1024),
    Model("DivE, sets of 4 x 1,024", 4, 1024),
    Model("VSE∞, and CAMP over 36 x 256", 1, 1024, 36 * 256),
    Model("VSE∞, and CAMP over 36 x 1,024", 1, 1024, 36 * 1024),
)


def main() -> None:
    """Print the tables."""
    args = arguments()
    measured = Measured()
    rows: list[tuple[str, list[str]]] = [
        ("embedding, hours of one H200, at most", [number(n / measured.gpu_pictures / HOUR) for n in SIZES]),
        ("… its price", [money(n / measured.gpu_pictures / HOUR * args.gpu_hour) for n in SIZES]),
        ("embedding without a GPU, hours of one core", [number(n * measured.core_seconds / HOUR) for n in SIZES]),
        ("… its price", [money(n * measured.core_seconds / HOUR * args.machine_hour / args.cores) for n in SIZES]),
    ]
    table("once", rows)
    for model in MODELS:
        numbers = model.vectors * model.dim
        whole = [n * (2 * 4 * numbers + measured.row) for n in SIZES]
        local = [n * 2 * model.locals for n in SIZES]
        eight = [n * (numbers + 8 * model.vectors) for n in SIZES]
        bits = [n * (numbers / 8 + 8 * model.vectors) for n in SIZES]
        usable = args.memory * GB * args.usable
        machines = [max(1, math.ceil(args.copies * b / usable)) for b in eight]
        fewer = [max(1, math.ceil(args.copies * b / usable)) for b in bits]
        disk = [args.copies * (a + b + c) for a, b, c in zip(whole, local, eight, strict=True)]
        rows = [
            ("float32 vectors and rows, on disk, as a file keeps them", [size(b) for b in whole]),
            ("a byte a number (IVF, HNSW and int8 engines)", [size(b) for b in eight]),
            ("a bit a number (PQ)", [size(b) for b in bits]),
        ]
        if model.locals:
            rows.append(("kept for re-ranking, float16, on disk", [size(b) for b in local]))
        rows += [
            (
                f"machines of {args.memory} GB, {args.copies} copies, a byte a number in memory",
                [f"{m:,}" for m in machines],
            ),
            ("… a bit a number in memory", [f"{m:,}" for m in fewer]),
            (
                "a month: those machines, and the disk",
                [
                    money(m * args.machine_hour * MONTH + d / GB * args.disk_month)
                    for m, d in zip(machines, disk, strict=True)
                ],
            ),
            (
                "… a bit a number",
                [
                    money(m * args.machine_hour * MONTH + d / GB * args.disk_month)
                    for m, d in zip(fewer, disk, strict=True)
                ],
            ),
        ]
        table(model.name, rows)
    queries = measured.camp_pairs / 100
    print(
        f"CAMP rescores the best 100 of {queries:,.0f} queries a second on one H200, whatever the number of pictures: "
        f"{money(args.gpu_hour / queries / HOUR * 10**6)} a million queries."
    )


def arguments() -> argparse.Namespace:
    """Prices and machines, which are assumptions."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu-hour", type=float, default=3.5, help="dollars for one H200")
    parser.add_argument("--machine-hour", type=float, default=2.0, help="dollars for one machine without a GPU")
    parser.add_argument("--cores", type=int, default=32, help="of that machine")
    parser.add_argument("--memory", type=int, default=256, help="GB of that machine")
    parser.add_argument("--usable", type=float, default=0.7, help="the part of it that may hold vectors")
    parser.add_argument("--copies", type=int, default=2, help="of everything, so that one machine may fail")
    parser.add_argument("--disk-month", type=float, default=0.08, help="dollars for a GB of SSD")
    return parser.parse_args()


def table(title: str, rows: list[tuple[str, list[str]]]) -> None:
    """One Markdown table with a column a size."""
    print(f"| {title} | " + " | ".join(count(n) for n in SIZES) + " |")
    print("|---" * (1 + len(SIZES)) + "|")
    for name, cells in rows:
        print(f"| {name} | " + " | ".join(cells) + " |")
    print()


def count(n: int) -> str:
    """10^6 as people write it."""
    return f"10^{len(str(n)) - 1}"


def number(value: float) -> str:
    """Two digits that matter, or whole numbers."""
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def money(value: float) -> str:
    """Dollars."""
    return f"${value:,.0f}" if value >= 10 else f"${value:.2f}"


def size(value: float) -> str:
    """Bytes with three digits at most."""
    for unit in ("B", "kB", "MB", "GB", "TB", "PB"):
        if value < 1000 or unit == "PB":
            return f"{value:.0f} {unit}" if value >= 10 or unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    raise AssertionError


if __name__ == "__main__":
    main()
