from pathlib import Path

import numpy as np
import pytest

from diptych.common.errors import DiptychError
from diptych.search.asking.columns import check_columns
from diptych.search.stores.address import open_store
from diptych.search.stores.store import Condition, Layout
from tests.search.stores.store_cases import entry


def test_a_column_that_no_entry_has_names_its_neighbour(tmp_path: Path) -> None:
    store = open_store(tmp_path / "i.db", Layout(2))
    check_columns(store, [Condition(name, "=", "picture") for name in ("path", "date", "taken", "camera", "written")])
    with pytest.raises(
        DiptychError, match=r"filter 'albun': no entry has such a column; expected one of 'bytes', 'camera', 'date', "
    ):
        check_columns(store, [Condition("albun", "=", "x")])
    store.add([entry("a", np.array([[1.0, 0.0]], np.float32), metadata={"album": "snow"})])
    check_columns(store, [Condition("album", "!=", "x")])
    for wrong, right in (("albun", "album"), ("dat", "date"), ("Path", "path")):
        with pytest.raises(DiptychError, match=f"did you mean '{right}'"):
            check_columns(store, [Condition("album", "=", "x"), Condition(wrong, "=", "x")])
    store.close()
