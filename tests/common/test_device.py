"""A device by its name; where it is not there, the same sentence everywhere."""

import pytest
import torch

from diptych.common.device import device_of_process, pick_device
from diptych.common.errors import DiptychError


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)


@pytest.mark.parametrize("name", [None, "auto"])
def test_nobody_says(name: str | None, gpus: None) -> None:
    assert pick_device(name) == torch.device("cuda")


@pytest.mark.parametrize("name", [None, "auto", "cpu", torch.device("cpu")])
def test_without_a_gpu(name: str | torch.device | None, no_gpu: None) -> None:
    assert pick_device(name) == torch.device("cpu")
    assert device_of_process() == "cpu"


def test_a_gpu_by_its_number(gpus: None) -> None:
    assert pick_device("cuda") == torch.device("cuda")
    assert pick_device("cuda:1") == torch.device("cuda:1")
    with pytest.raises(DiptychError, match=r"^device: 'cuda:2' cannot be used on this machine; .* to 'cuda:1'$"):
        pick_device("cuda:2")


@pytest.mark.parametrize("name", ["tpu", "toaster", "", "cuda", "cuda:x", "xla", "hpu", "meta", "mkldnn"])
@pytest.mark.filterwarnings("ignore:'mkldnn'")
def test_what_is_not_there_is_one_sentence(name: str, no_gpu: None) -> None:
    with pytest.raises(DiptychError) as told:
        pick_device(name)
    wanted = f"device: {name!r} cannot be used on this machine; expected 'auto' or 'cpu', for torch sees no GPU here"
    assert str(told.value) == wanted


def test_each_process_has_its_gpu(gpus: None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert device_of_process() == "cuda:0"
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert device_of_process() == "cuda:1"
