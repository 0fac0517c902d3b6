"""The columns that filters name, seen to be there."""

from collections.abc import Sequence

from diptych.common.errors import DiptychError, nearest
from diptych.data.photo import COLUMNS
from diptych.search.stores.store import OWN_FIELDS, WRITTEN, Condition, Store

# What can always be asked for, also where no picture happens to say it of itself.
ALWAYS = (*OWN_FIELDS, *COLUMNS, WRITTEN)


def check_columns(store: Store, where: Sequence[Condition]) -> None:
    """Refuse a filter on a column that no entry has: mistyped, it would only ever say that nothing fits."""
    for condition in where:
        name = condition.field
        if name not in ALWAYS and not store.has_column(name):
            hint = nearest(name, sorted({*ALWAYS, *store.columns()}))
            raise DiptychError(f"filter {name!r}: no entry has such a column; {hint}", where=store.address)
