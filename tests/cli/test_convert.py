"""`diptych convert` from the command line."""

import json
from pathlib import Path

import pytest
import torch

from diptych.cli.main import run
from diptych.matchers.base import Matcher
from tests.matchers import inputs
from tests.matchers.convert import authors
from tests.matchers.convert.making import all_scores, save, state, vocabulary, vocabulary_file


def test_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    image, text, pair = authors.Fc(), authors.Words(len(vocabulary())), authors.Pair("gate_fusion", "concat")
    file, out = save(tmp_path / "camp.pth.tar", state(image, text, pair)), tmp_path / "out"
    words = vocabulary_file(tmp_path)
    arguments = ["convert", str(file), "--from", "camp", "--out", str(out), "--vocabulary", str(words)]
    assert run([*arguments, "--module", "gate_fusion", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["out"] == str(out)
    assert told["matcher"]["fusion"] == "concat"
    assert told["settings"] == {"measure": "'gate_fusion', given"}
    assert told["parameters"] == sum(p.numel() for p in Matcher.from_pretrained(out).parameters())
    assert [name.split(".")[1] for name in told["unused"]] == ["reduce_layer_1", "reduce_layer_2"]
    images, tokens = inputs.images(), inputs.texts(inputs.word_tokenizer())
    theirs = authors.camp_scores(image, text, pair, images, tokens)
    torch.testing.assert_close(all_scores(Matcher.from_pretrained(out), images, tokens), theirs, atol=1e-5, rtol=1e-5)


def test_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = save(tmp_path / "scan.pth.tar", state(authors.Fc(), authors.Words(len(vocabulary()))))
    words, out = vocabulary_file(tmp_path), tmp_path / "out"
    arguments = ["convert", str(file), "--from", "scan", "--out", str(out), "--vocabulary", str(words)]
    assert run(arguments) == 1
    assert "give it with --option cross_attn=" in capsys.readouterr().err
    assert not out.exists()
    assert run([*arguments, "--option", "cross_attn=i2t", "--option", "agg_func=LogSumExp"]) == 0
    printed = capsys.readouterr().out
    assert f"{out}: a scan matcher of " in printed
    assert "cross_attn: 'i2t', given" in printed
    assert run(arguments) == 1
    assert "already there" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--from", "clip"], "'clip' is no model that can be converted"),
        (["--from", "scan", "--module", "gate_fusion"], "--module: is for --from camp"),
        (["--from", "scan", "--option", "cross_attn"], "expected name=value"),
        (["--from", "scan"], "no such file"),
    ],
)
def test_bad_words(more: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["convert", str(tmp_path / "none.pth"), *more, "--out", str(tmp_path / "out")]) == 1
    assert message in capsys.readouterr().err
