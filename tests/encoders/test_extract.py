import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from diptych.common.errors import DiptychError
from diptych.data.collection import Item, Regions, open_path
from diptych.data.feature_file import FeatureFile, FeatureSource
from diptych.data.feature_writer import FeatureWriter
from diptych.encoders.backbones import Extractor, Size
from diptych.encoders.detectors import Detector
from diptych.encoders.extract import describe, extract_features, load_extractor, weights_checksum
from tests.encoders.pictures import picture
from tests.encoders.tiny_models import detr, save, stirred, vit


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    torch.manual_seed(0)
    root = tmp_path_factory.mktemp("models")
    processor = {"size": {"shortest_edge": 32, "longest_edge": 64}}
    return {"vit": save(stirred(vit()), root / "vit"), "detr": save(stirred(detr(), 0.3), root / "detr", processor)}


@pytest.fixture
def items(tmp_path: Path) -> list[Item]:
    found = []
    for i in range(7):
        path = tmp_path / f"{i}.jpg"
        picture(40 + 8 * (i % 2), 30, seed=i).save(path)
        found.append(Item(f"id{i}", (), open=open_path(path), path=str(path)))
    return found


@pytest.mark.parametrize("name", ["vit", "detr"])
@pytest.mark.parametrize(("batch_size", "workers"), [(1, 1), (3, 2), (None, None)])
def test_a_file_holds_what_each_picture_alone_gives(
    models: dict[str, str], items: list[Item], tmp_path: Path, name: str, batch_size: int | None, workers: int | None
) -> None:
    extractor = load_extractor(models[name], regions=3 if name == "detr" else None)
    threads = torch.get_num_threads()
    writer = FeatureWriter(tmp_path / "out", describe(extractor, models[name], "single"))
    problems = extract_features(items, extractor, writer, batch_size=batch_size, workers=workers)
    file = writer.finish()
    assert problems == []
    assert file.ids == [item.id for item in items]
    assert torch.get_num_threads() == threads
    file.verify()
    for item, row in zip(items, range(len(file)), strict=True):
        assert item.open is not None
        (alone,) = extractor.regions([item.open()])
        np.testing.assert_allclose(file[row].vectors, alone.vectors, atol=1e-4)
        np.testing.assert_allclose(file[row].boxes, alone.boxes, atol=1e-2)  # type: ignore[arg-type]
        assert file[row].size == item.open().size


def test_half_precision_is_the_rounded_single(models: dict[str, str], items: list[Item], tmp_path: Path) -> None:
    extractor = load_extractor(models["vit"])
    files = {}
    for precision in ("half", "single"):
        writer = FeatureWriter(tmp_path / precision, describe(extractor, "vit", precision))
        extract_features(items, extractor, writer)
        files[precision] = writer.finish()
    half, single = files["half"].vectors, files["single"].vectors
    assert (half.dtype, single.dtype) == (np.float16, np.float32)
    np.testing.assert_allclose(half, single, rtol=1e-3, atol=1e-3)


def test_unreadable_pictures_are_listed_and_the_others_written(
    models: dict[str, str], items: list[Item], tmp_path: Path
) -> None:
    Path(items[2].path or "").write_bytes(b"no picture")
    Path(items[5].path or "").unlink()
    extractor = load_extractor(models["vit"])
    writer = FeatureWriter(tmp_path / "out", describe(extractor, "vit"))
    problems = extract_features(items, extractor, writer, batch_size=2, workers=2)
    assert [problem.where for problem in problems] == [items[2].path, items[5].path]
    assert "not a picture" in problems[0].what
    assert "no such picture" in problems[1].what
    assert writer.finish().ids == ["id0", "id1", "id3", "id4", "id6"]


def test_an_item_without_a_picture_is_listed(models: dict[str, str], items: list[Item], tmp_path: Path) -> None:
    extractor = load_extractor(models["vit"])
    writer = FeatureWriter(tmp_path / "out", describe(extractor, models["vit"]))
    (problem,) = extract_features([*items, Item("a", ())], extractor, writer)
    assert str(problem) == "a: the data has no picture of it"
    assert writer.finish().ids == [item.id for item in items]


def test_what_is_done_is_not_done_again(models: dict[str, str], items: list[Item], tmp_path: Path) -> None:
    extractor = load_extractor(models["vit"])
    source = describe(extractor, "vit")
    whole = FeatureWriter(tmp_path / "whole", source)
    extract_features(items, extractor, whole, batch_size=1)
    first = FeatureWriter(tmp_path / "out", source)
    extract_features(items[:4], extractor, first, batch_size=1)
    first.close()
    for item in items[:4]:
        Path(item.path or "").unlink()  # looking at them again would be a problem
    again = FeatureWriter(tmp_path / "out", source)
    assert extract_features(items, extractor, again, batch_size=1) == []
    assert again.finish().path.read_bytes() == whole.finish().path.read_bytes()


def test_a_failure_of_the_model_is_not_taken_for_a_bad_picture(
    models: dict[str, str], items: list[Item], tmp_path: Path
) -> None:
    class Broken(nn.Module):
        def forward(self, **_: object) -> None:
            raise RuntimeError("out of memory")

    extractor = load_extractor(models["vit"])
    writer = FeatureWriter(tmp_path / "out", describe(extractor, "vit"))
    extractor.model = Broken()  # type: ignore[assignment]
    extractor.register_parameter("left", nn.Parameter(torch.zeros(1)))
    with pytest.raises(RuntimeError, match="out of memory"):
        extract_features(items, extractor, writer)
    writer.close()


def test_the_source_says_what_the_features_came_from(models: dict[str, str]) -> None:
    cells, regions = load_extractor(models["vit"], 48), load_extractor(models["detr"], 40, 5)
    assert isinstance(regions, Detector)
    assert not cells.training
    source = describe(cells, "vit")
    assert (source.size, source.dim, source.grid, source.regions) == (48, 12, (6, 6), None)
    found = describe(regions, "detr", "single")
    assert (found.size, found.dim, found.grid, found.regions, found.precision) == (40, 16, None, 5, "single")
    assert source.package.startswith("diptych ")


def test_the_checksum_follows_the_weights(models: dict[str, str]) -> None:
    extractor = load_extractor(models["vit"])
    first = weights_checksum(extractor)
    assert first == weights_checksum(load_extractor(models["vit"]))
    with torch.no_grad():
        next(extractor.parameters()).view(-1)[0] += 1
    assert weights_checksum(extractor) != first


def test_wrong_settings_are_told(models: dict[str, str], items: list[Item], tmp_path: Path) -> None:
    with pytest.raises(DiptychError, match="a number of regions is for detectors"):
        load_extractor(models["vit"], regions=3)
    extractor = load_extractor(models["vit"])
    writer = FeatureWriter(tmp_path / "out", describe(extractor, "vit"))
    for wrong in ({"batch_size": 0}, {"workers": 0}):
        with pytest.raises(DiptychError, match="expected at least 1"):
            extract_features(items, extractor, writer, **wrong)  # type: ignore[arg-type]
    writer.close()


def test_a_feature_file_is_found_by_id(models: dict[str, str], items: list[Item], tmp_path: Path) -> None:
    extractor = load_extractor(models["vit"])
    writer = FeatureWriter(tmp_path / "out", describe(extractor, "vit"))
    extract_features(items, extractor, writer)
    writer.finish()
    file = FeatureFile(tmp_path / "out")
    assert file.rows["id3"] == 3


def test_elsewhere_than_on_the_cpu_one_thread_runs_the_model_while_others_decode(
    items: list[Item], tmp_path: Path
) -> None:
    threads = set()

    class Elsewhere(Extractor):
        """Means of the pixels, as if computed on another device."""

        dim, grid, size = 3, (1, 1), 8
        device = torch.device("meta")

        def prepare(self, image: Image.Image) -> np.ndarray:
            return np.asarray(image.resize((8, 8)))

        def extract(self, pixels: Sequence[np.ndarray], sizes: Sequence[Size], dtype: torch.dtype) -> list[Regions]:
            threads.add(threading.get_ident())
            return [
                Regions(p.mean((0, 1), dtype=np.float32)[None], None, s) for p, s in zip(pixels, sizes, strict=True)
            ]

    Path(items[4].path or "").unlink()
    writer = FeatureWriter(tmp_path / "out", FeatureSource("means", 8, 3, "single", (1, 1)))
    problems = extract_features(items, Elsewhere(), writer, batch_size=2, workers=3)
    file = writer.finish()
    assert threads == {threading.get_ident()}
    assert [p.where for p in problems] == [items[4].path]
    assert file.ids == [item.id for item in items if item is not items[4]]
    for item in (items[0], items[6]):
        assert item.open is not None
        expected = np.asarray(item.open().resize((8, 8))).mean((0, 1))
        np.testing.assert_allclose(file[file.rows[item.id]].vectors[0], expected, rtol=1e-6)
