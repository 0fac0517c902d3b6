"""The index at an address, whether it is there already or not."""

from pathlib import Path
from typing import TYPE_CHECKING

from diptych.common.errors import DiptychError
from diptych.common.model_place import canonical_name
from diptych.search.filling.exchange import layout_of_file
from diptych.search.filling.import_parts import whole_plan
from diptych.search.filling.parts_folder import PartsFolder, is_parts_folder
from diptych.search.index import Index
from diptych.search.models.index_model import DEFAULT_MODEL, ELSEWHERE, locals_of
from diptych.search.stores.address import SERVERS, open_store

if TYPE_CHECKING:
    import torch


def open_or_create(
    address: str | Path,
    model: str | None = None,
    *,
    keep_locals: str | None = None,
    device: "torch.device | str | None" = None,
) -> Index:
    """The index at an address, made where there is none; a model that is named must be the one it was made with."""
    try:
        index = Index.open(address, device=device)
    except DiptychError:
        if not _can_be_made(address):
            raise
        return Index.create(address, model or DEFAULT_MODEL, keep_locals=keep_locals, device=device)
    named = None if model is None else canonical_name(model)
    if named is not None and named != index.model:
        known = index.model or ELSEWHERE
        index.close()
        raise DiptychError(f"made with {known!r}, not {named!r}; index into another file with --index", where=address)
    if keep_locals is not None and (index.kept_locals is None or not index.kept_locals.same(locals_of(keep_locals))):
        index.close()
        raise DiptychError(
            f"made without what {keep_locals} needs; index into another file with --index", where=address
        )
    return index


def open_to_import(address: str | Path, source: str | Path, *, device: "torch.device | str | None" = None) -> Index:
    """The index at an address, made where there is none for the vectors of a file or a folder of parts.

    Parts know their model, which is not loaded; the vectors of a file come from elsewhere.
    """
    try:
        return Index.open(address, device=device)
    except DiptychError:
        if not _can_be_made(address):
            raise
    if is_parts_folder(source):
        return Index(open_store(address, whole_plan(PartsFolder(source)).model.layout), device)
    return Index.create(address, None, layout=layout_of_file(Path(source)), device=device)


def _can_be_made(address: str | Path) -> bool:
    """Whether there is no index yet: none at all, or one whose maker was killed before it wrote down its model."""
    if "://" in str(address):
        return str(address).startswith(SERVERS)
    if not Path(address).exists():
        return True
    try:
        store = open_store(address)
    except DiptychError:
        return False
    unfilled = "model" not in store.properties
    store.close()
    return unfilled
