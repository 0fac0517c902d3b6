import pytest

from diptych.common.errors import DiptychError
from diptych.training.sweep_axes import Axis, ChoiceAxis, RangeAxis, parse_axis


@pytest.mark.parametrize(
    ("text", "axis"),
    [
        ("training.optimiser.lr=log:1e-5..1e-3", RangeAxis("training.optimiser.lr", 1e-5, 1e-3, log=True)),
        ("loss.margin=0.1..0.3", RangeAxis("loss.margin", 0.1, 0.3)),
        ("loss.margin=.05 .. 1", RangeAxis("loss.margin", 0.05, 1.0)),
        ("model.slots=2..8", RangeAxis("model.slots", 2, 8, whole=True)),
        ("training.batch-size=log:16..256", RangeAxis("training.batch_size", 16, 256, log=True, whole=True)),
        ("loss.negatives=hardest,all", ChoiceAxis("loss.negatives", ("hardest", "all"))),
        ("training.batch_size=32, 64,128", ChoiceAxis("training.batch_size", ("32", "64", "128"))),
        ("t.milestones=[3, 5],[4]", ChoiceAxis("t.milestones", ("[3, 5]", "[4]"))),
        ("t.multipliers={a = 1, b = 2},{a = 0.1}", ChoiceAxis("t.multipliers", ("{a = 1, b = 2}", "{a = 0.1}"))),
    ],
)
def test_what_is_written_is_what_is_meant(text: str, axis: Axis) -> None:
    assert parse_axis(text) == axis


@pytest.mark.parametrize(
    "text", ["", "lr", "lr=", "=1..2", "lr=3..1", "lr=2..2", "lr=log:0..1", "lr=5", "a=b,b", "lr=log:1", "lr=1..x"]
)
def test_what_makes_no_sense_is_told(text: str) -> None:
    with pytest.raises(DiptychError, match=r"^--over: .*expected "):
        parse_axis(text)


def test_a_value_goes_into_the_recipe_as_it_is() -> None:
    assert parse_axis("lr=log:1e-5..1e-3").ends() == ["1e-05", "0.001"]
    assert parse_axis("n=2..8").ends() == ["2", "8"]
    assert parse_axis("n=a,b").ends() == ["a", "b"]
