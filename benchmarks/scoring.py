"""Scores of all pairs: pairs a second and peak memory, with random pictures and sentences of real size.

    python benchmarks/scoring.py                              SCAN beside the published loop, on this CPU
    python benchmarks/scoring.py --device cuda --dtype bfloat16
    python benchmarks/scoring.py --matcher camp --device cuda --dtype bfloat16 --memory 24GiB

SCAN, CAMP and MMCA run twice in one process on the same vectors: as they were published (a loop over sentences, see
published_loops.py) and as they are scored here. Every matcher runs at its paper's
dimensions with 36 regions and sentences of 20 to 50 words unless told otherwise. With `--memory` on a GPU, PyTorch may
take no more than that in all, weights and vectors included, as if the card had no more. One JSON object at the end.
"""

import argparse
import json
import resource
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from diptych.common.config import Tree, override
from diptych.data.batches import LocalFeatures, Tokens
from diptych.data.tokens import WordTokenizer
from diptych.data.vocabulary import SPECIAL, Vocabulary
from diptych.matchers.base import Matcher
from diptych.matchers.bounded import memory as scoring_memory
from diptych.matchers.bounded.memory import read_bytes
from diptych.matchers.catalog import MATCHERS, build_matcher, parse_matcher_config
from diptych.matchers.kept import Kept
from diptych.scoring.blocks import score_all
from diptych.scoring.candidates import score_candidates
from published_loops import has_loop, published_loop

VOCABULARY = 8000


def main() -> None:
    args = arguments()
    torch.manual_seed(0)
    device = torch.device(args.device)
    if args.threads:
        torch.set_num_threads(args.threads)
    if args.work:
        scoring_memory.ENOUGH[device.type] = read_bytes(args.work)
    limit = read_bytes(args.memory) if args.memory else None
    if limit is not None and device.type == "cuda":
        torch.cuda.set_per_process_memory_fraction(min(1.0, limit / torch.cuda.mem_get_info(device)[1]))
    dtype: torch.dtype = getattr(torch, args.dtype)
    matcher = random_matcher(args.matcher, args.set).to(device).eval()
    images, texts = random_sides(matcher, args.images, args.texts, args.regions, args.words)
    free = None if limit is None else limit - allocated(device)
    print(
        f"{args.matcher}: {len(images):,} pictures of {args.regions} regions, {len(texts):,} sentences of {args.words} "
        f"words, {args.dtype} on {device_name(device)}",
        file=sys.stderr,
    )
    results: Tree = {}

    def ours() -> Tensor:
        return score_all(matcher, images, texts, memory=free, dtype=dtype)

    # A first, small run takes the libraries' own start out of the time.
    score_all(matcher, images[:2], texts[:32], memory=free, dtype=dtype)
    scores, results["blocked"] = measure("blocked", ours, device, len(images) * len(texts))
    if args.candidates:
        chosen = torch.randint(len(images), (len(texts), args.candidates))

        def ragged() -> Tensor:
            return score_candidates(matcher, texts, images, chosen, "texts", memory=free, dtype=dtype)

        found, results["candidates"] = measure("candidates", ragged, device, chosen.numel())
        results["candidates"]["difference"] = float((found - scores.T.gather(1, chosen)).abs().max())
    if has_loop(matcher) and not args.no_plain:

        def plain() -> Tensor:
            with matcher.inference(), torch.autocast(device.type, dtype, enabled=dtype != torch.float32):
                return published_loop(matcher, images, texts)

        theirs, results["published loop"] = measure("published loop", plain, device, len(images) * len(texts))
        results["times faster"] = results["blocked"]["pairs/s"] / results["published loop"]["pairs/s"]
        results["difference"] = float((scores - theirs).abs().max())
        print(
            f"{results['times faster']:.2f} times faster; largest difference {results['difference']:.1e}",
            file=sys.stderr,
        )
    print(json.dumps({**vars(args), "device": device_name(device), "torch": torch.__version__, "results": results}))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--matcher", default="scan", choices=sorted(MATCHERS))
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="fields of the matcher's config")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16", "float16"])
    parser.add_argument("--images", type=int, help="1000 on a GPU, 100 on a CPU")
    parser.add_argument("--texts", type=int, help="5000 on a GPU, 500 on a CPU")
    parser.add_argument("--regions", type=int, default=36)
    parser.add_argument("--words", default="20-50", help="shortest and longest sentence, every length as likely")
    parser.add_argument("--memory", help="such as 24GiB; all that is free without it")
    parser.add_argument("--work", help="working memory of one call, to find how much is enough")
    parser.add_argument("--candidates", type=int, default=0, help="also score so many random pictures a sentence")
    parser.add_argument("--no-plain", action="store_true", help="leave the published loop out")
    parser.add_argument("--threads", type=int)
    args = parser.parse_args()
    large = not args.device.startswith("cpu")
    args.images = args.images or (1000 if large else 100)
    args.texts = args.texts or (5000 if large else 500)
    return args


def random_matcher(kind: str, assignments: list[str]) -> Matcher:
    """A matcher at its paper's dimensions with random weights; a GRU reads the sentences, so no download is needed."""
    tree = override({"kind": kind, "text": {"kind": "gru"}}, assignments)
    config = parse_matcher_config(tree, "--set")
    words = [f"w{i}" for i in range(VOCABULARY - len(SPECIAL))]
    return build_matcher(config, WordTokenizer(Vocabulary([*SPECIAL, *words])))


def random_sides(matcher: Matcher, images: int, texts: int, regions: int, words: str) -> tuple[Kept, Kept]:
    """What the matcher keeps of random features and random words, on its device; `words` such as 8-20."""
    shortest, longest = (int(x) for x in words.split("-"))
    lengths = torch.randint(shortest, longest + 1, (texts, 1))
    tokens = Tokens(torch.randint(len(SPECIAL), VOCABULARY, (texts, longest)), torch.arange(longest) < lengths)
    features = torch.randn(images, regions, matcher.config.image.feature_dim)
    pictures = LocalFeatures(features, torch.ones(images, regions, dtype=torch.bool))
    return matcher.encode_images(pictures), matcher.encode_texts(tokens)


def measure(name: str, call: Callable[[], Tensor], device: torch.device, pairs: int) -> tuple[Tensor, dict[str, Any]]:
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
        torch.cuda.synchronize(device)
    before = allocated(device)
    start = time.perf_counter()
    scores = call()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    seconds = time.perf_counter() - start
    if device.type == "cuda":
        peak = torch.cuda.max_memory_allocated(device)
    else:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    assert scores.isfinite().all()
    figures = {"seconds": seconds, "pairs/s": pairs / seconds, "peak GiB": peak / 2**30, "held GiB": before / 2**30}
    print(
        f"  {name:14} {pairs / seconds:12,.0f} pairs/s  {seconds:8.2f} s  peak {peak / 2**30:6.2f} GiB"
        + (f" (weights and vectors {before / 2**30:.2f})" if device.type == "cuda" else ""),
        file=sys.stderr,
    )
    return scores, figures


def allocated(device: torch.device) -> int:
    return torch.cuda.memory_allocated(device) if device.type == "cuda" else 0


def device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{device.type}, {torch.get_num_threads()} threads"


if __name__ == "__main__":
    main()
