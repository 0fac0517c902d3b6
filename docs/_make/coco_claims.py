"""What the papers say of one another and of their own parts, where one set of features can put it to the test.

Rows and tables are those of diptych.evaluation.published.
"""

from dataclasses import dataclass

FOLDS = "coco-1k"
NAMES = {
    "vse++/main": "VSE++",
    "vse-infinity/main": "VSE∞",
    "dive/main": "DivE",
    "scan/main": "SCAN, words to cells",
    "scan/i2t": "SCAN, cells to words",
    "camp/main": "CAMP",
    "mmca/main": "MMCA",
}
BIGRU = "ResNet-101 Faster-RCNN on IN+VG (BUTD) + BiGRU, Region"
REGION = "BUTD (Region) + BiGRU"


@dataclass(frozen=True)
class Claim:
    """A paper's table has the first of two methods above the second."""

    better: str
    worse: str
    table: str
    rows: tuple[str, str]
    protocol: str = FOLDS
    figures: tuple[str, ...] = ("i2t/r@1", "t2i/r@1")


CLAIMS = [
    Claim("scan/i2t", "vse++/main", "camp/table-1", ("SCAN i-t [16]", "VSE++ [5]")),
    Claim("scan/i2t", "scan/main", "camp/table-1", ("SCAN i-t [16]", "SCAN t-i [16]")),
    Claim("camp/main", "vse++/main", "camp/table-1", ("CAMP (ours)", "VSE++ [5]")),
    Claim("camp/main", "scan/i2t", "camp/table-1", ("CAMP (ours)", "SCAN i-t [16]")),
    Claim("mmca/main", "vse++/main", "mmca/table-2", ("MMCA", "VSE++ (ResNet) [6]")),
    Claim("mmca/main", "camp/main", "mmca/table-2", ("MMCA", "CAMP (Faster R-CNN, ResNet) [46]")),
    Claim("mmca/main", "scan/i2t", "mmca/table-2", ("MMCA", "SCAN (Faster R-CNN, ResNet) [21]")),
    Claim(
        "vse-infinity/main", "vse++/main", "vse-infinity/table-4", (f"Our: VSE∞ ({BIGRU})", f"Our: VSE++ ({BIGRU})")
    ),
    Claim(
        "vse-infinity/main", "scan/i2t", "vse-infinity/table-4",
        (f"Our: VSE∞ ({BIGRU})", f"SCAN ({BIGRU}, 2018, of two models)"),
    ),
    Claim("dive/main", "vse-infinity/main", "dive/table-a1", ("Ours", "VSE∞"), "eccv", ("i2t/map@r", "t2i/map@r")),
]  # fmt: skip
# An ablation to the table, the row of the whole model and the row of the ablation; None where no table here has it.
# Each paper has the model as it is above all of them.
ABLATIONS = {
    "camp/no-gates": ("camp/table-3", "CAMP", "Fusion w/o gates"),
    "camp/no-cross-attention": ("camp/table-3", "CAMP", "w/o cross-attn"),
    "camp/no-fusion": ("camp/table-3", "CAMP", "w/o fusion"),
    "camp/no-residual": ("camp/table-3", "CAMP", "Fusion w/o residual"),
    "camp/mlp-ranking": ("camp/table-3", "CAMP", "MLP+Ranking loss"),
    "camp/bce-without-hardest": ("camp/table-3", "CAMP", "BCE w/o hardest"),
    "camp/not-normalised": None,
    "mmca/alpha-0": None,
    "mmca/alpha-0-1": ("mmca/table-6", "α = 0.2", "α = 0.1"),
    "mmca/alpha-0-4": ("mmca/table-6", "α = 0.2", "α = 0.4"),
    "mmca/alpha-0-8": ("mmca/table-6", "α = 0.2", "α = 0.8"),
    "mmca/alpha-1": None,
    "mmca/normalised": None,
    "mmca/normalised-alpha-0": None,
    "mmca/normalised-alpha-1": None,
    "vse-infinity/mean": ("vse-infinity/table-4", f"Our: VSE∞ ({BIGRU})", f"Our: VSE++ ({BIGRU})"),
    "vse-infinity/max": None,
    "vse-infinity/no-augmentation": (
        "vse-infinity/table-2", f"VSE∞ ({REGION}, visual+text)", f"VSE∞ ({REGION}, size augmentation: none)"
    ),
    "vse-infinity/transformer": ("vse-infinity/table-3", f"VSE∞ ({REGION}, BiGRU)", f"VSE∞ ({REGION}, Transformer)"),
    "vse-infinity/per-dimension": (
        "vse-infinity/table-7",
        f"VSE∞ ({REGION}, per-dimension coefficients: no)", f"VSE∞ ({REGION}, per-dimension coefficients: yes)",
    ),
    "vse-infinity/features": (
        "vse-infinity/table-8",
        f"VSE∞ ({REGION}, feature to g(·, ·): no)", f"VSE∞ ({REGION}, feature to g(·, ·): yes)",
    ),
    "dive/chamfer": None,
    "dive/mil": None,
    "dive/mp": None,
    "dive/sets-at-full-rate": None,
    "dive/no-augmentation": None,
}  # fmt: skip
RATES = {"rate-low": "5e-4", "": "1e-3", "rate-high": "2e-3"}  # the variants that only change it, and the recipes
LONGER = "longer"  # the variant of each main row that trains three times as long
ALPHAS = {
    "mmca/alpha-0": 0.0, "mmca/alpha-0-1": 0.1, "mmca/main": 0.2, "mmca/alpha-0-4": 0.4, "mmca/alpha-0-8": 0.8,
    "mmca/alpha-1": 1.0,
}  # fmt: skip
