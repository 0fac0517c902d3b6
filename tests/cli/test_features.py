import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from diptych.cli.main import run
from diptych.data.feature_file import FeatureFile, part_folder
from diptych.data.read import read_collection
from tests.encoders.pictures import picture
from tests.encoders.tiny_models import detr, save, stirred, vit


@pytest.fixture(scope="module")
def backbone(tmp_path_factory: pytest.TempPathFactory) -> str:
    torch.manual_seed(0)
    return save(stirred(vit()), tmp_path_factory.mktemp("vit"))


@pytest.fixture
def images(tmp_path: Path) -> Path:
    folder = tmp_path / "images"
    folder.mkdir()
    for i in range(5):
        picture(40, 30, seed=i).save(folder / f"{i}.jpg")
    return folder


def test_a_folder_of_pictures_becomes_a_feature_file(
    images: Path, backbone: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.features"
    assert run(["features", str(images), "--backbone", backbone, "--out", str(out), "--json"]) == 0
    outcome = json.loads(capsys.readouterr().out)
    assert (outcome["pictures"], outcome["new"], outcome["skipped"]) == (5, 5, [])
    assert (outcome["regions"], outcome["dim"], outcome["precision"]) == ([16, 16], 12, "half")
    file = FeatureFile(out)
    file.verify()
    assert file.ids == ["0", "1", "2", "3", "4"]
    assert (file.source.backbone, file.source.size, file.checksum) == (backbone, 32, outcome["checksum"])
    before = out.read_bytes()
    assert run(["features", str(images), "--backbone", backbone, "--out", str(out)]) == 0
    assert "all done before" in capsys.readouterr().out
    assert out.read_bytes() == before


def test_regions_from_a_detector(images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = save(stirred(detr()), tmp_path / "detr")
    out = tmp_path / "out"
    options = ["--size", "32", "--regions", "3", "--precision", "single", "--batch-size", "2", "--workers", "1"]
    assert run(["features", str(images), "--backbone", folder, "--out", str(out), *options]) == 0
    file = FeatureFile(out)
    assert (file.source.regions, file.source.precision, file[0].vectors.shape) == (3, "single", (3, 16))
    assert "5 pictures of 3 x 16 in single precision" in capsys.readouterr().out


def test_a_precomp_folder_is_read_back(
    images: Path, backbone: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [f'{{"image": "{i}.jpg", "captions": ["one {i}", "two {i}"], "split": "{split}"}}'
             for i, split in enumerate(["train", "train", "val", "test", "test"])]  # fmt: skip
    (images / "captions.jsonl").write_text("\n".join(lines))
    out = tmp_path / "own_precomp"
    arguments = ["features", str(images), "--backbone", backbone, "--out", str(out), "--format", "precomp"]
    assert run(arguments) == 0
    told = capsys.readouterr().out
    assert f"{out}: train: 2 pictures, 4 sentences; dev: 1 pictures, 2 sentences; test: 2" in told
    back = read_collection(out, deep=True)
    assert [(item.split, item.sentences[1].text) for item in back.items][2] == ("val", "two 2")
    assert (
        run(["features", str(images), "--backbone", backbone, "--out", str(tmp_path / "f"), "--precision", "single"])
        == 0
    )
    file = FeatureFile(tmp_path / "f")
    for item in back.items:
        assert back.features is not None
        assert item.row is not None
        name = {"train/0": "0", "train/1": "1"}.get(item.id, item.id)
        assert np.array_equal(back.features[item.row].vectors, file[file.rows[name]].vectors)
    assert not (tmp_path / "own_precomp.features").exists()
    assert run(arguments) == 1
    assert "own_precomp: already there" in capsys.readouterr().err


def test_bad_pictures_are_listed_and_skipped_on_request(
    images: Path, backbone: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (images / "3.jpg").write_bytes(b"no picture")
    arguments = ["features", str(images), "--backbone", backbone, "--out", str(tmp_path / "out")]
    assert run(arguments) == 1
    told = capsys.readouterr().err
    assert str(images / "3.jpg") in told
    assert "1 of 5 pictures cannot be read" in told
    assert not (tmp_path / "out").exists()
    assert run([*arguments, "--skip-bad"]) == 0
    told = capsys.readouterr().err
    assert "4 of 5 pictures were done; going on" in told
    assert str(images / "3.jpg") in told
    assert FeatureFile(tmp_path / "out").ids == ["0", "1", "2", "4"]
    assert run([*arguments, "--skip-bad"]) == 0


def test_other_settings_or_pictures_do_not_mix(
    images: Path, backbone: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    arguments = ["features", str(images), "--backbone", backbone, "--out", str(out)]
    (images / "0.jpg").rename(tmp_path / "0.jpg")
    assert run(arguments) == 0
    assert run([*arguments, "--size", "40"]) == 1
    assert "made with size 32 and 40" in capsys.readouterr().err
    (tmp_path / "0.jpg").rename(images / "0.jpg")
    assert run(arguments) == 1
    assert "made with other pictures" in capsys.readouterr().err
    out.unlink()
    (images / "1.jpg").write_bytes(b"no picture")
    assert run(arguments) == 1
    (images / "2.jpg").unlink()
    assert run(arguments) == 1
    assert "begun with other pictures, such as '2'" in capsys.readouterr().err


def test_a_device_that_is_not_there_is_told(
    images: Path, backbone: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["features", str(images), "--backbone", backbone, "--out", str(tmp_path / "out"), "--device"]
    assert run([*arguments, "nonsense"]) == 1
    assert "device: 'nonsense' cannot be used" in capsys.readouterr().err


def test_a_killed_run_goes_on_to_the_same_file(images: Path, backbone: str, tmp_path: Path) -> None:
    for i in range(5, 60):
        picture(40, 30, seed=i).save(images / f"{i}.jpg")
    os.remove(images / "59.jpg")
    os.mkfifo(images / "59.jpg")  # reading it waits for ever: the run is surely alive when it is killed
    out = tmp_path / "out"
    code = (
        "import sys, diptych.data.feature_writer as w; w._COMMIT_SECONDS = 0; "
        "from diptych.cli.main import run; sys.exit(run(sys.argv[1:]))"
    )
    options = ["--backbone", backbone, "--batch-size", "1", "--workers", "1"]
    arguments = ["features", str(images), "--out", str(out), *options]
    process = subprocess.Popen([sys.executable, "-c", code, *arguments])
    journal = part_folder(out) / "journal"
    for _ in range(1200):
        if journal.exists() and journal.read_text().count("\n") >= 5:
            break
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert not out.exists()
    os.remove(images / "59.jpg")
    picture(40, 30, seed=59).save(images / "59.jpg")
    assert run(arguments) == 0
    unbroken = ["features", str(images), "--out", str(tmp_path / "whole"), *options]
    assert run(unbroken) == 0
    assert out.read_bytes() == (tmp_path / "whole").read_bytes()
