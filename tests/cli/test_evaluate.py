import json
from pathlib import Path

import numpy as np
import pytest

from diptych.cli.main import run
from diptych.common.config import to_tree
from diptych.evaluation.evaluate import evaluate_scores
from diptych.matchers.base import Matcher
from diptych.scoring.blocks import score_all
from tests.evaluation import tiny


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A run folder as far as evaluation is concerned."""
    tiny.matcher().save_pretrained(tmp_path / "run" / "best")
    return tmp_path / "run"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tiny.precomp(tmp_path / "tiny_precomp")


def test_json_is_one_object_of_the_model_s_figures(model: Path, data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["evaluate", str(model), "--protocol", "flickr30k", "--data", str(data), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    matcher = Matcher.from_pretrained(model / "best")
    features = np.load(data / "test_ims.npy")
    texts = matcher.encode_texts((data / "test_caps.txt").read_text().splitlines())
    expected = evaluate_scores(score_all(matcher, matcher.encode_images(list(features)), texts), None, "flickr30k")
    assert {key: found[key] for key in expected.figures} == pytest.approx(expected.figures)
    assert (found["protocol"], found["split"], found["images"], found["sentences"]) == ("flickr30k", "test", 9, 45)


def test_the_result_is_kept_beside_the_run(model: Path, data: Path) -> None:
    assert run(["evaluate", str(model), "--data", str(data)]) == 0
    assert sorted(p.name for p in (model / "evaluations").iterdir()) == ["all-pairs-test.json", "all-pairs-test.npz"]


def test_scores_in_half_precision_say_so(model: Path, data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["evaluate", str(model), "--data", str(data), "--precision", "bf16"]) == 0
    told = capsys.readouterr()
    assert "scores were computed in bfloat16" in told.out + told.err


def test_a_model_folder_and_another_place_for_the_result(
    model: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "elsewhere"
    assert run(["evaluate", str(model / "best"), "--data", str(data), "--out", str(out), "--split", "test"]) == 0
    assert (out / "all-pairs-test.json").is_file()
    assert "rsum" in capsys.readouterr().out


def test_beside_a_paper_s_rows(model: Path, data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["evaluate", str(model), "--protocol", "flickr30k", "--data", str(data)]
    assert run([*arguments, "--beside", "camp/table-3", "--format", "markdown"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("| Base model | 63.5 | 87.1 |") for line in lines)
    assert any(line.startswith("| run |") for line in lines)


def test_several_runs_and_their_ensemble(
    model: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other"
    tiny.matcher("camp", seed=3).save_pretrained(other)
    arguments = ["evaluate", str(model), str(other), "--data", str(data), "--json"]
    assert run(arguments) == 0
    assert list(json.loads(capsys.readouterr().out)) == ["run", "other"]
    assert run([*arguments, "--ensemble", "--out", str(tmp_path / "both")]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["model"] == "run + other"
    assert (tmp_path / "both" / "all-pairs-test.npz").is_file()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--protocol", "flickr30"], "did you mean 'flickr30k'"),
        (["--split", "tset"], "has no split 'tset'; did you mean 'test'"),
        (["--protocol", "coco-1k"], "9 pictures cannot be cut into folds"),
        (["--protocol", "cxc"], "expected COCO's Karpathy test split"),
        (["--beside", "camp/table-33"], "did you mean 'camp/table-3'"),
        (["--format", "html"], "format: 'html' does not exist"),
        (["--device", "nonsense"], "device: 'nonsense' cannot be used"),
        (["--precision", "half"], "precision: expected float32, bf16 or fp16, got 'half'"),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(
    model: Path, data: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["evaluate", str(model), "--data", str(data), *arguments]) == 1
    assert message in capsys.readouterr().err


def test_without_data_the_run_must_name_its_own(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["evaluate", str(model)]) == 1
    assert "has no recipe.json that names its data; give --data" in capsys.readouterr().err
    assert run(["evaluate", str(model.parent)]) == 1


def test_a_run_s_own_data_and_pictures_that_it_was_trained_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(0)
    images = [
        {
            "filename": f"10002682{i:02d}.jpg",
            "split": ["train", "val", "test"][i % 3],
            "sentences": [{"raw": text, "sentid": 5 * i + j} for j, text in enumerate(texts)],
            "imgid": i,
        }
        for i, texts in enumerate(tiny.captions(9))
    ]
    (tmp_path / "data.json").write_text(json.dumps({"dataset": "f", "images": images}))
    features = tmp_path / "features"
    features.mkdir()
    for image in images:
        np.save(features / f"{Path(str(image['filename'])).stem}.npy", rng.normal(size=(3, 6)).astype(np.float32))
    folder = tmp_path / "trained"
    matcher = tiny.matcher()
    matcher.save_pretrained(folder / "best")
    recipe = {
        "name": "r",
        "model": to_tree(matcher.config),
        "data": {"kind": "files", "path": str(tmp_path / "data.json"), "features": str(features)},
        "loss": {"kind": "hinge"},
    }
    (folder / "recipe.json").write_text(json.dumps(recipe))
    assert run(["evaluate", str(folder), "--json"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["images"] == 3
    assert "warning" not in captured.err
    again = ["--data", str(tmp_path / "data.json"), "--features", str(features), "--split", "train", "--json"]
    assert run(["evaluate", str(folder), *again]) == 0
    captured = capsys.readouterr()
    assert "was trained on 3 of these 3 pictures" in captured.err
    assert "trained on 3 of these 3" in json.loads(captured.out)["notes"][0]


@pytest.mark.parametrize(
    ("option", "command"),
    [
        ("--index=i.db", "evaluate-index"),
        ("--store", "evaluate-index"),
        ("--rerank", "evaluate-reranked"),
        ("--near-misses", "evaluate-near-misses"),
    ],
)
def test_what_has_a_command_of_its_own_is_said(option: str, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["evaluate", "run", option, "x"]) == 2
    said = capsys.readouterr().err
    name = option.partition("=")[0]
    assert said == f"diptych evaluate: {name}: is a command of its own; see `diptych {command} --help`\n"


def test_without_a_run_there_is_nothing_to_evaluate(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["evaluate"]) == 2
    assert "RUN" in capsys.readouterr().err
