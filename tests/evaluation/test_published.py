from collections import defaultdict

import pytest

from diptych.common.errors import DiptychError
from diptych.evaluation.figures import RECALLS
from diptych.evaluation.protocols import PROTOCOLS
from diptych.evaluation.published import PublishedTable, published, published_tables

TABLES = published_tables()


def test_every_table_is_there() -> None:
    expected = {
        *(f"camp/table-{i}" for i in (1, 2, 3)), "camp/section-4.5", "camp/supplement-table-1",
        "camp/supplement-table-2", *(f"mmca/table-{i}" for i in range(1, 7)),
        *(f"vse-infinity/table-{i}" for i in range(1, 9)), "dive/table-a1", "dive/section-b1", "dive/section-b1-wide",
        "dive/section-b3",
    }  # fmt: skip
    assert set(TABLES) == expected
    numbers = sum(value is not None for t in TABLES.values() for row in t.rows for value in row.values.values())
    assert numbers == 1126  # CAMP 234, MMCA 265, VSE∞ 589, DivE 38


@pytest.mark.parametrize("table", TABLES.values(), ids=list(TABLES))
def test_rows_are_consistent(table: PublishedTable) -> None:
    for row in table.rows:
        assert row.protocol is None or row.protocol in PROTOCOLS
        assert set(row.doubtful) <= set(row.values)
        assert not row.doubtful or row.note
        values = row.values
        six = [values.get(key) for key in RECALLS]
        if values.get("rsum") is not None and None not in six:
            # Seven numbers, each rounded to 0.1.
            assert sum(v for v in six if v is not None) == pytest.approx(values["rsum"], abs=0.3501)
        for direction in ("i2t", "t2i"):
            keys = [f"{direction}/r@{k}" for k in (1, 5, 10)]
            recalls = [v for key in keys if (v := values.get(key)) is not None]
            assert recalls == sorted(recalls)
            assert all(0 < v <= 100 for v in recalls)


def test_a_method_has_the_same_numbers_in_every_paper_that_cites_it() -> None:
    cited: dict[tuple[str, str | None], set[tuple[tuple[str, float], ...]]] = defaultdict(set)
    for id, label in [
        ("camp/table-1", "CAMP (ours)"), ("camp/table-2", "CAMP (ours)"), ("camp/table-3", "CAMP"),
        ("camp/supplement-table-2", "CAMP"),
        *((f"mmca/table-{i}", "CAMP (Faster R-CNN, ResNet) [46]") for i in (1, 2, 3)),
    ]:  # fmt: skip
        for row in published(id).rows:
            if row.method == label:
                cited["CAMP", row.protocol].add(tuple(sorted(row.figures().items())))
    assert len(cited) == 3
    assert all(len(numbers) == 1 for numbers in cited.values())
    for protocol, mmca, vse in (("flickr30k", "table-1", "table-4"), ("coco-1k", "table-2", "table-4"),
                                ("coco-5k", "table-3", "table-5")):  # fmt: skip
        ours = published(f"mmca/{mmca}").row("SCAN (Faster R-CNN, ResNet) [21]").figures()
        theirs = published(f"vse-infinity/{vse}").row("SCAN", protocol).figures()
        assert {key: theirs[key] for key in ours} == ours


def test_rows_map_to_our_figures_and_leave_out_what_is_doubtful() -> None:
    assert published("camp/table-3").row("Base model").figures() == {
        "flickr30k/i2t/r@1": 63.5, "flickr30k/i2t/r@5": 87.1, "flickr30k/i2t/r@10": 93.1,
        "flickr30k/t2i/r@1": 46.2, "flickr30k/t2i/r@5": 74.2, "flickr30k/t2i/r@10": 83.4,
    }  # fmt: skip
    assert published("mmca/table-1").row("VSE++ (ResNet) [6]").figures() == {
        "flickr30k/i2t/r@1": 52.9, "flickr30k/t2i/r@1": 39.6, "flickr30k/t2i/r@10": 79.5,
    }  # fmt: skip
    assert published("dive/table-a1").row("Ours", "cxc").figures() == {"cxc/i2t/r@1": 72.3, "cxc/t2i/r@1": 55.5}
    assert published("camp/section-4.5").row("CAMP").values["gate/negative"] == 2.7087e-9
    best = "Our: VSE∞ (ResNeXT-101 on IG (WSL) + BERT, Grid, of two models)"
    assert published("vse-infinity/table-4").row(best, "flickr30k").figures()["flickr30k/rsum"] == 555.1


def test_what_is_not_there_is_named() -> None:
    with pytest.raises(DiptychError, match="camp/table-9: no such published table; did you mean 'camp/table-"):
        published("camp/table-9")
    with pytest.raises(DiptychError, match="no row 'Base modle'; did you mean 'Base model'"):
        published("camp/table-3").row("Base modle")
    with pytest.raises(DiptychError, match="fits several rows"):
        published("vse-infinity/table-4").row("Our: VSE∞", "coco-1k")
