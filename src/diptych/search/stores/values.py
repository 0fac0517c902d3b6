"""Values of columns, as people write them."""

from diptych.search.stores.store import Value


def cell_value(cell: str) -> Value:
    """A cell of a table: a number where it reads like one."""
    text = cell.strip()
    try:
        number = float(text) if any(c in text for c in ".eE") else int(text)
    except ValueError:
        return text
    return number if number == number and abs(number) < 1 << 53 else text
