"""What must be the same of a store that took another's place, for those who have that one open."""

from collections.abc import Mapping

from diptych.search.stores.store import Layout, StoreReplaced

# What an index is made with, among a store's properties: another one's vectors cannot be compared with these.
MADE_WITH = ("model", "locals")


def made_with(properties: Mapping[str, str]) -> dict[str, str]:
    """What of a store's properties says what its vectors are."""
    return {name: value for name, value in properties.items() if name in MADE_WITH}


def check_replaced(
    address: object, was: Layout, now: Layout, made_before: Mapping[str, str], made_now: Mapping[str, str]
) -> None:
    """See that a store which took the place of an open one holds vectors of the same kind.

    was, now: the layouts of the two; made_before, made_now: what they were made with
    """
    where = f"{address}: replaced while it was open by an index"
    if now != was:
        raise StoreReplaced(f"{where} made for {now}, not {was}; open it again")
    if made_now == made_before:
        return
    if "model" not in made_now:
        raise StoreReplaced(f"{where} that was never filled; run `diptych index` again")
    model, own = (names.get("model") or "vectors from elsewhere" for names in (made_now, made_before))
    if model == own:
        raise StoreReplaced(f"{where} made with {model!r} and other local features; open it again")
    raise StoreReplaced(f"{where} made with {model!r}, not {own!r}; open it again")
