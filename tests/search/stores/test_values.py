import pytest

from diptych.search.stores.values import cell_value


@pytest.mark.parametrize(
    ("cell", "value"),
    [
        (" 12 ", 12), ("-3.5", -3.5), ("1e3", 1000.0),
        ("2024-05", "2024-05"), ("", ""), ("nan", "nan"), (str(1 << 53), str(1 << 53)),
    ],
)  # fmt: skip
def test_a_cell_is_a_number_where_it_reads_like_one(cell: str, value: str | float) -> None:
    read = cell_value(cell)
    assert read == value
    assert type(read) is type(value)
