"""The whole table of scoring: what each model takes on this machine, the least it could take, and how cost grows.

    python benchmarks/performance.py                          on this CPU, beside the published loops
    python benchmarks/performance.py --device cuda            on a GPU, in bfloat16
    python benchmarks/performance.py --only scan camp         some of the rows
    python benchmarks/performance.py --grow                   three sizes of pictures, sentences, regions, words and d

The floor of a row is the larger of two times: the operations that its formulas need (a product of each two numbers and
its sum are two), over the operations a second that this machine reached on a large matrix in the same run and type; and
the bytes of both sides and of the answer, over its measured rate of copying. Each row is checked before it is timed: a
few of its scores, or all of its best, beside the plain formula in float32. Contenders take turns; a time is the least
of several, and its spread the largest over the least. With `--processor` on a CPU, processor seconds are counted:
whatever else the machine does then hardly matters, best with `--threads 1`. Weights and local vectors are random. One
JSON object at the end.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from diptych.data.batches import LocalFeatures
from diptych.encoders.encoded import Encoded
from diptych.matchers.base import Matcher
from diptych.matchers.kept import Kept
from diptych.scoring import score_all, score_all_near, score_candidates, top_k_both
from published_loops import has_loop, published_loop
from scoring import device_name, random_matcher

BEST = 10
OFTEN, LONG = 40, 0.3  # how often a short call is timed, and for how many seconds in all
CLOSE = {torch.float32: 2e-4, torch.bfloat16: 0.1, torch.float16: 0.05}


@dataclass(frozen=True)
class Case:
    """One row: a model's options and how much of what is scored; `cpu` is how much on a CPU."""

    name: str
    kind: str
    settings: tuple[str, ...] = ()
    result: str = "matrix"
    cpu: tuple[int, int] = (16, 96)
    gpu: tuple[int, int] = (1000, 5000)
    regions: int = 36
    dim: int = 1024


CASES = (
    Case("vse-infinity", "vse", ('image_pool="gpo"', 'text_pool="gpo"'), "top 10 both ways", (1000, 5000)),
    # How its sets are predicted is not measured here, so they are predicted by a small module.
    Case("dive", "dive", ("iterations=1", "head_dim=16", "feed_forward=1"), "top 10 both ways", (250, 1250)),
    Case("scan-t2i", "scan", (), cpu=(32, 192)),
    Case("scan-i2t", "scan", ('direction="i2t"',), cpu=(32, 192)),
    Case("camp-vector", "camp", (), cpu=(8, 64)),
    Case("camp-scalar", "camp", ('gate="scalar"',), cpu=(8, 64)),
    Case("mmca", "mmca", (), dim=256),
)
RERANKED = (
    Case("rerank-20", "camp", ('similarity="cosine"',), "1 sentence, best 20", (20, 1), (20, 1), dim=256),
    Case("rerank-one", "camp", ('similarity="cosine"',), "1 sentence, best 100", (100, 1), (100, 1)),
    Case("rerank-100", "camp", ('similarity="cosine"',), "20 sentences, best 100", (2000, 20), (2000, 20), dim=256),
)


@dataclass
class Machine:
    """What was measured of the machine itself: products and bytes a second."""

    device: torch.device
    dtype: torch.dtype
    repeat: int
    clock: Callable[[], float]
    operations: float = 0.0
    bandwidth: float = 0.0

    def measure(self) -> None:
        """One large product in the type that is scored in, and one large copy."""
        size = 1536 if self.device.type == "cpu" else 8192
        a, b = (torch.randn(size, size, device=self.device, dtype=self.dtype) for _ in range(2))
        seconds, _ = self.least([lambda: a @ b], 5 * self.repeat)[0]
        self.operations = 2 * size**3 / seconds
        x = torch.empty(1 << (25 if self.device.type == "cpu" else 30), dtype=torch.uint8, device=self.device)
        y = torch.empty_like(x)
        seconds, _ = self.least([lambda: y.copy_(x)], 5 * self.repeat)[0]
        self.bandwidth = 2 * x.numel() / seconds

    def least(self, calls: list[Callable[[], object]], repeat: int) -> list[tuple[float, float]]:
        """Seconds of each call, the least of several in turns, and the largest over it; the first is not counted.

        Short calls are repeated more often, for the first ones after another contender are slower.
        """
        seconds: list[list[float]] = [[] for _ in calls]
        turn, turns = 0, repeat
        while turn <= turns:
            for call, taken in zip(calls, seconds, strict=True):
                self.wait()
                begun = self.clock()
                call()
                self.wait()
                taken.append(self.clock() - begun)
            turn += 1
            if turn == 2:
                turns = max(repeat, min(OFTEN, int(LONG / max(taken[1] for taken in seconds))))
        return [(min(taken[1:]), max(taken[1:]) / min(taken[1:])) for taken in seconds]

    def wait(self) -> None:
        """Until everything asked of the device is done."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def main() -> None:
    args = arguments()
    torch.manual_seed(0)
    device = torch.device(args.device)
    large = device.type != "cpu"
    dtype: torch.dtype = getattr(torch, args.dtype or ("bfloat16" if large else "float32"))
    if args.threads:
        torch.set_num_threads(args.threads)
    machine = Machine(device, dtype, args.repeat, time.process_time if args.processor else time.perf_counter)
    machine.measure()
    told = f"{device_name(device)}, {str(dtype).removeprefix('torch.')}"
    told += ", processor seconds" if args.processor else ""
    say(f"{told}: {machine.operations / 1e9:,.0f} G operations/s, {machine.bandwidth / 1e9:,.1f} GB/s")
    words = args.words or ("16-16" if large else "8-20")
    chosen = [case for case in (*CASES, *RERANKED) if not args.only or any(case.name.startswith(o) for o in args.only)]
    rows = []
    if args.grow:
        say(f"{'model':14} {'in':10} {'sizes':>20}  {'seconds':>34}  {'twice as many take':>18}")
        for case in chosen:
            if case not in RERANKED:
                rows += grow(case, machine, words, large, args)
    else:
        say(
            f"{'model':14} {'result':24} {'pairs':>11} {'seconds':>9} {'spread':>6} {'floor':>9} {'over floor':>10}"
            f" {'loop':>9} {'faster':>6}"
        )
        for case in chosen:
            rows.append(reranked(case, machine) if case in RERANKED else measure(case, machine, words, large, args))
    machine_figures = {"operations/s": machine.operations, "bytes/s": machine.bandwidth}
    about = {"device": told, "torch": torch.__version__, "words": words, "machine": machine_figures}
    print(json.dumps({**about, "grow": args.grow, "rows": rows}))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", choices=["float32", "bfloat16", "float16"], help="bfloat16 on a GPU, else float32")
    parser.add_argument("--words", help="shortest and longest sentence; 16-16 on a GPU, 8-20 on a CPU")
    parser.add_argument("--only", nargs="*", help="rows whose names begin so")
    parser.add_argument("--grow", action="store_true", help="how cost grows, in place of the table")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--no-loops", action="store_true", help="leave the published loops out")
    parser.add_argument("--processor", action="store_true", help="count processor seconds, on a CPU")
    parser.add_argument("--threads", type=int)
    return parser.parse_args()


def measure(case: Case, machine: Machine, words: str, large: bool, args: argparse.Namespace) -> dict[str, Any]:
    """One row of the table."""
    n, m = case.gpu if large else case.cpu
    matcher, images, texts = sides(case, machine, n, m, words)
    check(case, matcher, images, texts, machine)
    calls: list[Callable[[], object]] = [lambda: score(case, matcher, images, texts, machine.dtype)]
    looped = not large and not args.no_loops and has_loop(matcher)
    if looped:
        calls.append(lambda: loop(matcher, images, texts))
    times = machine.least(calls, machine.repeat)
    floor, bound = least_seconds(case, images, texts, machine)
    seconds, spread = times[0]
    row = {
        "model": case.name,
        "result": case.result,
        "pictures": n,
        "sentences": m,
        "seconds": seconds,
        "spread": spread,
        "floor": floor,
        "bound by": bound,
        "over floor": seconds / floor,
        "pairs/s": n * m / seconds,
    }
    if looped:
        row["loop"], row["loop spread"] = times[1]
        row["times faster"] = times[1][0] / seconds
    show(row, n * m)
    return row


def sides(case: Case, machine: Machine, n: int, m: int, words: str) -> tuple[Matcher, Kept, Kept]:
    """A random matcher and what it keeps, on the device."""
    matcher = random_matcher(case.kind, [f"dim={case.dim}", *case.settings]).to(machine.device).eval()
    return matcher, *random_kept(matcher, case, n, m, words)


def random_kept(matcher: Matcher, case: Case, n: int, m: int, words: str) -> tuple[Kept, Kept]:
    """What it keeps of random local vectors: no encoder runs, whose time is not what is measured here."""
    shortest, longest = (int(x) for x in words.split("-"))
    device = matcher.device
    pictures = torch.ones(n, case.regions, dtype=torch.bool, device=device)
    sentences = (torch.arange(longest) < torch.randint(shortest, longest + 1, (m, 1))).to(device)
    seen, told = (torch.randn(*mask.shape, case.dim, device=device) for mask in (pictures, sentences))
    spelt = torch.randn(m, longest, matcher.config.text.word_dim, device=device)
    with matcher.inference():
        images = matcher.keep_images(Encoded(seen, pictures, None, seen))
        return images, matcher.keep_texts(Encoded(told, sentences, told[:, 0], spelt))


def score(case: Case, matcher: Matcher, images: Kept, texts: Kept, dtype: torch.dtype) -> object:
    """What is timed: the matrix where it is computed, or the best both ways in main memory."""
    if case.result == "matrix":
        return score_all_near(matcher, images, texts, dtype=dtype)
    return top_k_both(matcher, images, texts, BEST, BEST, dtype=dtype)


def loop(matcher: Matcher, images: Kept, texts: Kept) -> Tensor:
    with matcher.inference():
        return published_loop(matcher, images, texts)


def check(case: Case, matcher: Matcher, images: Kept, texts: Kept, machine: Machine) -> None:
    """A few scores beside the plain formula, with gradients and in float32; the best beside the matrix's own."""
    few, some = images[:3], texts[:5]
    expected = matcher.score(few, some).detach().cpu().float()
    found = score_all(matcher, few, some, dtype=machine.dtype)
    torch.testing.assert_close(found, expected, atol=CLOSE[machine.dtype], rtol=CLOSE[machine.dtype])
    if case.result != "matrix":
        matrix = score_all(matcher, images, texts, dtype=machine.dtype)
        both = top_k_both(matcher, images, texts, BEST, BEST, dtype=machine.dtype)
        for rows, (scores, positions) in zip((matrix.T, matrix), both, strict=True):
            near = CLOSE[machine.dtype]
            torch.testing.assert_close(scores, rows.topk(BEST).values, atol=near, rtol=near)
            torch.testing.assert_close(rows.gather(1, positions), scores, atol=near, rtol=near)


def least_seconds(case: Case, images: Kept, texts: Kept, machine: Machine) -> tuple[float, str]:
    """The floor, and what it is made of."""
    lengths = texts.lengths.cpu().tolist()
    operations = len(images) * sum(pair_operations(case, case.regions, words) for words in lengths)
    narrow = torch.finfo(machine.dtype).bits // 8
    held = sum(
        t.numel() * (narrow if t.is_floating_point() else 1) for s in (images, texts) for t in s.tensors().values()
    )
    answer = 4 * len(images) * len(texts) if case.result == "matrix" else 12 * BEST * (len(images) + len(texts))
    times = {"operations": operations / machine.operations, "bytes": (held + answer) / machine.bandwidth}
    bound = max(times, key=lambda name: times[name])
    return times[bound], bound


def pair_operations(case: Case, regions: int, words: int) -> float:
    """Operations of one pair that no rearrangement of its formulas does without, as they are computed here."""
    d, cells, items = case.dim, regions * words, regions + words
    if case.kind == "vse":
        return 2 * d
    if case.kind == "dive":
        return 2 * 4 * 4 * d
    if case.kind == "scan":  # affinities, and the squared lengths by Gram matrices
        attended = regions if "i2t" not in "".join(case.settings) else words
        return 2 * cells * d + 2 * cells * attended
    if case.kind == "mmca":  # attention both ways, three Linears, convolutions and what follows them
        return 8 * cells * d + 6 * items * d * d + 12 * words * d * d + 6 * d * d
    # CAMP: affinities, messages both ways, the MLP; with a gate vector the fusion's Linear of each item too.
    if "scalar" in "".join(case.settings):
        return 8 * cells * d + 2 * d * d
    return 6 * cells * d + 2 * items * d * d + 2 * d * d


def reranked(case: Case, machine: Machine) -> dict[str, Any]:
    """Local features of the candidates encoded, and each sentence scored with its own; what is kept serves again."""
    n, m = case.cpu
    matcher = random_matcher(case.kind, [f"dim={case.dim}", *case.settings]).to(machine.device).eval()
    _, texts = random_kept(matcher, case, 1, m, "8-14")
    features = torch.randn(n, case.regions, matcher.config.image.feature_dim)
    mask = torch.ones(n, case.regions, dtype=torch.bool)
    candidates = torch.arange(n).view(m, n // m)

    def keep() -> Kept:
        return matcher.encode_images(LocalFeatures(features, mask))

    images = keep()

    def again() -> Tensor:
        return score_candidates(matcher, texts, images, candidates, "texts")

    few = min(3, n // m)
    expected = torch.stack([matcher.score(images[row[:few]], texts[[j]])[:, 0] for j, row in enumerate(candidates)])
    torch.testing.assert_close(again()[:, :few], expected.detach().cpu(), atol=2e-4, rtol=2e-4)
    (encoding, _), (seconds, spread) = machine.least([keep, again], machine.repeat)
    lengths = texts.lengths.cpu().tolist()
    operations = n // m * sum(pair_operations(case, case.regions, words) for words in lengths)
    floor = operations / machine.operations
    row = {
        "model": case.name,
        "result": case.result,
        "seconds": seconds,
        "spread": spread,
        "floor": floor,
        "bound by": "operations",
        "over floor": seconds / floor,
        "pairs/s": n / seconds,
        "encoding of the candidates": encoding,
    }
    show(row, n)
    say(f"{'':14} and {encoding:.4f} s for the candidates' local features, the first time")
    return row


def grow(case: Case, machine: Machine, words: str, large: bool, args: argparse.Namespace) -> list[dict[str, Any]]:
    """Seconds at half, at one and at two times each size, the others as they are."""
    n, m = case.gpu if large else (max(4, case.cpu[0] // 2), max(16, case.cpu[1] // 2))
    shortest, longest = (int(x) for x in words.split("-"))
    middle = (shortest + longest) // 2
    factors = (0.5, 1.0, 2.0)
    rows = []
    for name, base in (
        ("pictures", n),
        ("sentences", m),
        ("regions", case.regions),
        ("words", middle),
        ("d", case.dim),
    ):
        sizes = [int(base * factor) for factor in factors]
        ready = []
        for size in sizes:
            changed = replace(
                case, regions=size if name == "regions" else case.regions, dim=size if name == "d" else case.dim
            )
            length = size if name == "words" else middle
            counts = size if name == "pictures" else n, size if name == "sentences" else m
            ready.append((changed, *sides(changed, machine, *counts, f"{length}-{length}")))
        calls: list[Callable[[], object]] = [
            lambda one=one: score(one[0], one[1], one[2], one[3], machine.dtype)  # type: ignore[misc]
            for one in ready
        ]
        times = [seconds for seconds, _ in machine.least(calls, machine.repeat)]
        twice = (times[-1] / times[0]) ** 0.5
        rows.append({"model": case.name, "in": name, "sizes": sizes, "seconds": times, "twice as many take": twice})
        listed = " ".join(f"{seconds:11.5f}" for seconds in times)
        say(f"{case.name:14} {name:10} {'/'.join(map(str, sizes)):>20}  {listed}  {twice:17.2f}x")
    return rows


def show(row: dict[str, Any], pairs: int) -> None:
    told = f" {row['loop']:9.4f} {row['times faster']:6.2f}" if "loop" in row else ""
    say(
        f"{row['model']:14} {row['result']:24} {pairs:11,} {row['seconds']:9.4f} {row['spread']:6.2f} "
        f"{row['floor']:9.4f} {row['over floor']:10.2f}{told}"
    )


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
