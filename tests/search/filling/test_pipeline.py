from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from diptych.common.errors import DiptychError
from diptych.search.filling.new_entry import Failed, NewEntry, picture_of
from diptych.search.filling.pipeline import LocalsKeeper, embed_entries
from diptych.search.filling.walk import FoundFile
from diptych.search.models.embedder import load_embedder
from diptych.search.stores.store import Entry, Stamp
from tests.search import tiny


def entries(folder: Path) -> list[NewEntry]:
    return [
        picture_of(FoundFile(str(p), "picture", p.stat().st_size, p.stat().st_mtime_ns))
        for p in sorted(folder.iterdir())
    ]


def sentence(text: str) -> NewEntry:
    return NewEntry(text, "sentence", Stamp(text, 1, 1, ""), text=text)


def test_every_entry_has_an_outcome(vse_folder: str, pictures: Path) -> None:
    embedder = load_embedder(vse_folder, "cpu")
    (pictures / "001.png").write_bytes(b"x")
    given = [*entries(pictures), *map(sentence, ["two dog", "a cat", "snow"])]
    for batch, workers in ((1, 1), (2, 2), (64, 3)):
        outcomes = [o for some in embed_entries(given, embedder, batch_size=batch, workers=workers) for o in some]
        assert sorted(o.key for o in outcomes) == sorted(e.key for e in given)
        assert [o.key for o in outcomes if isinstance(o, Failed)] == [str(pictures / "001.png")]
        for outcome in outcomes:
            if isinstance(outcome, Entry):
                alone = (
                    embedder.embed_texts([outcome.text])
                    if outcome.kind == "sentence"
                    else embedder.embed_pictures([outcome.key])
                )
                np.testing.assert_allclose(outcome.vectors, alone[0], atol=1e-5)
                assert outcome.stamp.digest
                assert outcome.locals is None
    with pytest.raises(DiptychError, match="at least 1"):
        list(embed_entries(given, embedder, workers=0))


def test_known_content_is_not_embedded_again(vse_folder: str, pictures: Path) -> None:
    embedder = load_embedder(vse_folder, "cpu")
    first = entries(pictures)[0].with_digest()
    known = NewEntry(first.key, "picture", Stamp(first.key, 0, 9, ""), first.open, known=first.stamp.digest + "~meta")
    (outcome,) = [o for some in embed_entries([known], embedder) for o in some]
    assert isinstance(outcome, NewEntry)
    assert outcome.stamp == Stamp(first.key, 0, 9, first.stamp.digest + "~~1")
    assert outcome.facts["width"] == 40


def test_bombs_and_truncated_pictures_fail_alone(
    vse_folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tiny.fill(tmp_path / "p", 1)
    Image.new("RGB", (300, 300)).save(folder / "bomb.png")
    noise = np.random.default_rng(0).integers(0, 255, (200, 200, 3), dtype=np.uint8)
    Image.fromarray(noise).save(folder / "cut.jpg", quality=95)
    (folder / "cut.jpg").write_bytes((folder / "cut.jpg").read_bytes()[:9000])
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 40_000)
    embedder = load_embedder(vse_folder, "cpu")
    outcomes = [o for some in embed_entries(entries(folder), embedder) for o in some]
    failed = {Path(o.key).name: o.problem.what for o in outcomes if isinstance(o, Failed)}
    assert failed.keys() == {"bomb.png", "cut.jpg"}
    assert "too large to decode safely" in failed["bomb.png"]
    assert "cannot be decoded" in failed["cut.jpg"]


def test_local_features_are_kept_the_models_own_or_anothers(vse_folder: str, dive_folder: str, pictures: Path) -> None:
    embedder, other = load_embedder(vse_folder, "cpu"), load_embedder(dive_folder, "cpu")
    assert embedder.locals_source is not None
    assert other.locals_source is not None
    image = Image.open(pictures / "000.png").convert("RGB")
    for source, shared in ((embedder.locals_source, True), (other.locals_source, False)):
        keeper = LocalsKeeper(source, embedder)
        assert keeper.shared == shared
        outcomes = [o for some in embed_entries(entries(pictures), embedder, keeper) for o in some]
        assert isinstance(outcomes[0], Entry)
        assert outcomes[0].locals is not None
        expected = source.load().eval().regions([image])[0].vectors
        np.testing.assert_allclose(outcomes[0].locals, expected, atol=2e-2)
