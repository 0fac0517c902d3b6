"""What one step of training takes, beside the same step with all pairs scored with gradient, and its peak memory.

    python benchmarks/training_steps.py --device cuda              every row, in bf16, on a GPU
    python benchmarks/training_steps.py --only camp mmca --device cuda
    python benchmarks/training_steps.py --only end-to-end --device cuda --workers 8
    python benchmarks/training_steps.py --toy                      all of it in small, on a CPU

The recipes of COCO are taken as they are, with 128 captions a step, each with its own picture, on made data: random
features of 36 x 2048 that are held on the device, random sentences of 16 tokens. A step is the training loop's own:
encoding in half precision, scores, loss, backward pass, clipping, optimiser. Contenders are the loop as it is, and the
same loop where the matcher scores all pairs with gradient: at once, and for CAMP also 16 pictures at a time, computed
again in the backward pass. For DivE and MMCA also the loop compiled, and for MMCA with its BERT with sentences held.

Before they are timed, a step of the loop is compared with one over all pairs from the same weights: the loss, and for
each parameter the largest difference of its gradient over the largest number in it; in float32 without TF32, and in
half precision. Contenders take turns; a time is the median. Peak memory is of weights, optimiser and step, not of the
held data. With `--syncs` every place that waits for the GPU within a step is told. MMCA's BERT has random weights;
`--mmca-text gru` takes a GRU instead.

The row `end-to-end` tunes the architecture of the shipped model on made JPEG files as recipes/default.toml does, eager
and compiled, and tells which share of the time goes by in waiting for data. It needs the package
efficientnet_lite_pytorch for the architecture; weights come from the shipped model, word embeddings are random.
`--try` measures changes to it that are not in the package, several joined by +; cuda-graphs also changes DivE's and
MMCA's compiled steps, and pools-aside VSE∞'s. One JSON object at the end.
"""

import argparse
import json
import logging
from typing import Any

import torch

from diptych.training import counted_scores
from scoring import device_name
from steps import TOY, Sizes, say
from steps_end_to_end import END_TO_END, end_to_end
from steps_of_features import ROWS_OF_TABLE, feature_rows
from steps_tried import TRIED


def main() -> None:
    args = arguments()
    sizes = TOY if args.toy else Sizes()
    device = torch.device(args.device)
    if args.threads:
        torch.set_num_threads(args.threads)
    logging.disable(logging.INFO)  # Lightning tells of its precision each time
    if args.toy or args.counted:
        counted_scores.PLAIN = 0  # else so few pairs would be scored with gradient at once
    torch.set_float32_matmul_precision("high")  # as a run sets it
    dynamo: Any = torch._dynamo.config
    dynamo.recompile_limit = 64  # contenders share their code, and each compiles it for itself
    rows: list[dict[str, Any]] = []
    told = f"{device_name(device)}, {args.precision}, {sizes.batch} captions a step"
    say(f"{told}\n{'model':14} {'contender':22} {'ms a step':>10} {'spread':>7} {'peak GiB':>9}  beside plain")
    for row in ROWS_OF_TABLE:
        if chosen(row.name, args):
            rows += feature_rows(row, sizes, device, args)
    if chosen(END_TO_END, args):
        rows += end_to_end(sizes, device, args)
    print(json.dumps({"device": told, "torch": torch.__version__, "sizes": vars(sizes), "rows": rows}))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", default="bf16", choices=["float32", "bf16", "fp16"])
    parser.add_argument("--only", nargs="*", help="rows whose names begin so")
    parser.add_argument("--toy", action="store_true", help="small sizes, to see that it runs")
    parser.add_argument("--steps", type=int, help="timed steps of each contender; 30 on a GPU, 5 on a CPU")
    parser.add_argument("--warm-up", type=int, help="steps before; 10 on a GPU, 2 on a CPU")
    parser.add_argument("--no-check", action="store_true", help="do not compare gradients first")
    parser.add_argument("--no-plain", action="store_true", help="the loop as it is alone")
    parser.add_argument("--from-host", action="store_true", help="features come from main memory at each step")
    parser.add_argument("--syncs", action="store_true", help="tell what waits for the GPU within a step")
    parser.add_argument("--profile", action="store_true", help="tell which kernels a step's time goes to")
    parser.add_argument("--mmca-text", default="bert", choices=["bert", "gru"])
    parser.add_argument("--workers", type=int, default=0, help="of the end-to-end row's data")
    parser.add_argument("--no-data", action="store_true", help="leave out the share of time that data takes")
    parser.add_argument("--try", dest="tried", nargs="*", default=[], metavar="CHANGE", help=" ".join(TRIED))
    parser.add_argument("--counted", action="store_true", help="score without gradient first, however few pairs")
    parser.add_argument("--threads", type=int)
    args = parser.parse_args()
    unknown = {part for change in args.tried for part in change.split("+")} - TRIED.keys()
    if unknown:
        parser.error(f"--try: no {sorted(unknown)}; there are {sorted(TRIED)}, and several joined by +")
    large = args.device != "cpu"
    args.steps = args.steps or (30 if large else 5)
    args.warm_up = args.warm_up or (10 if large else 2)
    return args


def chosen(name: str, args: argparse.Namespace) -> bool:
    return not args.only or any(name.startswith(one) for one in args.only)


if __name__ == "__main__":
    main()
