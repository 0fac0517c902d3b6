"""Checkpoints are read in every form that authors left them in, and nothing inside them runs."""

import hashlib
import os
import pickle
import sys
from argparse import Namespace
from collections import OrderedDict
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from diptych.common.errors import DiptychError
from diptych.matchers.convert.checkpoint import read_checkpoint

IMAGE = {"fc.weight": torch.randn(3, 2), "fc.bias": torch.randn(3)}
TEXT = {"embed.weight": torch.randn(5, 2)}


class Evil:
    def __init__(self, path: Path, function: Any = os.mkdir) -> None:
        self.path, self.function = path, function

    def __reduce__(self) -> Any:
        return self.function, (str(self.path),)


class Custom:
    pass


def written(path: Path, content: Any, old: bool = False) -> Path:
    torch.save(content, path, _use_new_zipfile_serialization=not old)
    return path


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize("opt", [Namespace(margin=0.2, name="a"), {"margin": 0.2, "name": "a"}, None])
def test_new_and_old_files(opt: Any, old: bool, tmp_path: Path) -> None:
    path = written(tmp_path / "a.pth.tar", {"model": [OrderedDict(IMAGE), TEXT], "opt": opt, "epoch": 3}, old)
    checkpoint = read_checkpoint(path)
    assert checkpoint.tensors.keys() == {"image.fc.weight", "image.fc.bias", "text.embed.weight"}
    torch.testing.assert_close(checkpoint.tensors["image.fc.weight"], IMAGE["fc.weight"])
    assert dict(checkpoint.settings) == ({} if opt is None else {"margin": 0.2, "name": "a"})
    assert checkpoint.checksum == hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize(
    "model",
    [
        [{f"module.{k}": v for k, v in IMAGE.items()}, {f"module.{k}": v for k, v in TEXT.items()}],
        {**{f"img_enc.{k}": v for k, v in IMAGE.items()}, **{f"txt_enc.{k}": v for k, v in TEXT.items()}},
        {**{f"module.img_enc.{k}": v for k, v in IMAGE.items()}, "module.txt_enc.embed.weight": TEXT["embed.weight"]},
        {**{f"img_enc.module.{k}": v for k, v in IMAGE.items()}, "txt_enc.module.embed.weight": TEXT["embed.weight"]},
    ],
)
@pytest.mark.parametrize("key", ["model", "state_dict", None])
def test_names_are_one_whatever_stood_before_them(model: Any, key: str | None, tmp_path: Path) -> None:
    path = written(tmp_path / "a.pth", model if key is None else {key: model})
    names = {"image.fc.weight", "image.fc.bias", "text.embed.weight"}
    assert read_checkpoint(path).tensors.keys() == names


def test_three_parts(tmp_path: Path) -> None:
    path = written(tmp_path / "a.pth", {"model": [IMAGE, TEXT, {"fc_out.0.bias": torch.zeros(2)}]})
    assert "pair.fc_out.0.bias" in read_checkpoint(path).tensors


def test_easydict_is_read_without_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CAMP's settings are of that class: a dictionary that keeps everything as attributes too."""
    module = ModuleType("easydict")

    class EasyDict(dict):  # type: ignore[type-arg]
        pass

    EasyDict.__module__, EasyDict.__qualname__ = "easydict", "EasyDict"
    module.EasyDict = EasyDict  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "easydict", module)
    opt = EasyDict(measure="gate_fusion_new", optimizer=EasyDict(type="SGD"))
    opt.measure = opt["measure"]  # type: ignore[attr-defined]
    path = written(tmp_path / "a.pth", {"model": [IMAGE, TEXT], "opt": opt})
    monkeypatch.delitem(sys.modules, "easydict")
    settings = read_checkpoint(path).settings
    assert settings["measure"] == "gate_fusion_new"
    assert settings["optimizer"]["type"] == "SGD"


class Python2Pickler(pickle._Pickler):  # type: ignore[name-defined,misc]
    """Writes every string as the byte string that it was in Python 2."""

    dispatch: ClassVar[dict[type, Any]] = dict(pickle._Pickler.dispatch)  # type: ignore[attr-defined]

    def save_bytes_of(self, text: str) -> None:
        raw = text.encode()
        self.write(b"U" + bytes([len(raw)]) + raw)
        self.memoize(text)

    dispatch[str] = save_bytes_of


def test_files_of_python_2(tmp_path: Path) -> None:
    """As VSE++ and SCAN were published."""
    python_2 = ModuleType("pickle")

    def dump(content: Any, file: Any, protocol: int = 2) -> None:
        Python2Pickler(file, protocol).dump(content)

    python_2.Pickler, python_2.dump = Python2Pickler, dump  # type: ignore[attr-defined]
    content = {"model": [OrderedDict(IMAGE), OrderedDict(TEXT)], "opt": Namespace(measure="order", margin=0.2)}
    torch.save(content, tmp_path / "a.pth.tar", pickle_module=python_2, _use_new_zipfile_serialization=False)
    assert b"X\x07\x00\x00\x00measure" not in (tmp_path / "a.pth.tar").read_bytes()
    checkpoint = read_checkpoint(tmp_path / "a.pth.tar")
    torch.testing.assert_close(checkpoint.tensors["image.fc.weight"], IMAGE["fc.weight"])
    assert dict(checkpoint.settings) == {"measure": "order", "margin": 0.2}


def test_numbers_of_numpy_do_no_harm(tmp_path: Path) -> None:
    content = {"model": [IMAGE, TEXT], "best_rsum": np.float64(431.5), "epoch": np.int64(3)}
    assert len(read_checkpoint(written(tmp_path / "a.pth", content)).tensors) == 3


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize("function", [os.mkdir, exec, eval])
@pytest.mark.parametrize("where", ["opt", "model", "key", "alone"])
def test_a_call_is_refused_and_does_not_run(
    where: str, function: Any, old: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = tmp_path / "ran"
    path = ran if function is os.mkdir else Path(f"__import__('os').mkdir({str(ran)!r})")
    evil = Evil(path, function)
    content: Any = {
        "opt": {"model": [IMAGE, TEXT], "opt": Namespace(a=evil)},
        "model": {"model": [evil, TEXT]},
        "key": {"model": [IMAGE, TEXT], "more": evil},
        "alone": evil,
    }[where]
    file = written(tmp_path / "evil.pth", content, old)
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    with pytest.raises(DiptychError, match=rf"evil\.pth: .*{function.__name__}.*nothing was run"):
        read_checkpoint(file)
    assert not ran.exists()


def test_a_plain_pickle_is_not_run(tmp_path: Path) -> None:
    (tmp_path / "evil.pth").write_bytes(pickle.dumps(Evil(tmp_path / "ran")))
    with pytest.raises(DiptychError, match=r"evil\.pth"):
        read_checkpoint(tmp_path / "evil.pth")
    assert not (tmp_path / "ran").exists()


def test_another_class_is_named(tmp_path: Path) -> None:
    path = written(tmp_path / "a.pth", {"model": [IMAGE, TEXT], "opt": Custom()})
    with pytest.raises(DiptychError, match=r"Custom, which is neither a tensor nor a setting"):
        read_checkpoint(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"model": 3}, "expected two or three state dictionaries, or one; got a int"),
        ({"model": [IMAGE]}, "got 1 of them"),
        ({"model": [IMAGE, 4]}, "expected state dictionaries, got a int"),
        ({"model": [IMAGE, {"a": 4}]}, "'a' is a int; expected a tensor"),
        ({"model": IMAGE}, "'fc.weight' belongs to no side"),
        (
            {"model": [{**IMAGE, "module.fc.bias": IMAGE["fc.bias"]}, TEXT]},
            "'fc.bias' of the image side is there twice",
        ),
        ({"model": [IMAGE, TEXT], "opt": 4}, "opt: expected a namespace or a dictionary, got int"),
        ([], "got 0 of them"),
        (
            {"model": [{**IMAGE, "fc.bias": torch.tensor([1.0, float("nan"), 0.0])}, TEXT]},
            "'fc.bias' of the image side holds a number that is not finite",
        ),
        (
            {"model": [IMAGE, {"embed.weight": torch.ones(5, 2, dtype=torch.complex64)}]},
            "'embed.weight' of the text side holds complex numbers",
        ),
    ],
)
def test_another_structure_is_named(content: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(DiptychError, match=rf"a\.pth: .*{message}"):
        read_checkpoint(written(tmp_path / "a.pth", content))


def test_no_file_and_no_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(DiptychError, match="no such file"):
        read_checkpoint(tmp_path / "none.pth")
    for data in (b"", b"hello", b"PK\x03\x04broken"):
        (tmp_path / "broken.pth").write_bytes(data)
        with pytest.raises(DiptychError, match=r"broken\.pth: not a checkpoint that can be read safely"):
            read_checkpoint(tmp_path / "broken.pth")
