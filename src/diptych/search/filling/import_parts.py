"""A folder of parts into any store."""

import hashlib
from collections.abc import Callable

from diptych.common.errors import DiptychError
from diptych.common.progress import progress_bar
from diptych.search.filling.embed_plan import EmbedPlan, PlanPart, read_plan
from diptych.search.filling.entry_table import read_note
from diptych.search.filling.exchange import import_
from diptych.search.filling.parts_folder import PartsFolder
from diptych.search.models.fingerprint import Fingerprint
from diptych.search.stores.store import Store

# While parts of a plan are put into a store, its property of this name says how many are in, and of which files.
IMPORTING = "importing:"


def whole_plan(folder: PartsFolder) -> EmbedPlan:
    """The plan of a folder whose parts are all there."""
    plan = read_plan(folder)
    if plan is None:
        raise DiptychError("holds no plan.json; expected a folder that `diptych embed` wrote", where=folder.address)
    there = folder.names()
    missing = [part.name for part in plan.parts if part.name not in there]
    if missing:
        raise DiptychError(
            f"{len(missing):,} of {len(plan.parts):,} parts are not there yet, such as {missing[0]}; "
            "run `diptych embed` again",
            where=folder.address,
        )
    return plan


def import_parts(store: Store, folder: PartsFolder, adopt: Callable[[Fingerprint], None]) -> int:
    """Add the entries of all parts; how many. After a kill it goes on with the part that it was at.

    Where parts were made again meanwhile it begins anew; what is in already is then written over.

    adopt: sees that the store is meant for the model that the parts were made with
    """
    plan = whole_plan(folder)
    adopt(plan.model)
    progress = IMPORTING + plan.id
    files = hashlib.blake2b(repr(folder.stamps([p.name for p in plan.parts])).encode(), digest_size=8).hexdigest()
    done, _, of = store.properties.get(progress, "").partition(" ")
    begun, count = int(done) if of == files else 0, 0
    with progress_bar("parts") as bar:
        task = bar.add_task("importing", total=len(plan.parts), completed=begun, note="")
        for part in plan.parts[begun:]:
            count += _import(store, folder, plan, part)
            store.set_properties({progress: f"{part.number + 1} {files}"})
            bar.update(task, advance=1, note=f"{count:,} entries")
    store.delete_properties([progress])
    return count


def _import(store: Store, folder: PartsFolder, plan: EmbedPlan, part: PlanPart) -> int:
    with folder.reading(part.name) as path:
        note = read_note(path)
        if (note.get("plan"), note.get("part")) != (plan.id, part.number):
            raise DiptychError(
                "is not of this folder's plan; remove it and run `diptych embed` again",
                where=f"{folder.address}/{part.name}",
            )
        return import_(store, path, locals=bool(plan.model.locals))
