"""Every tensor lands, or the error names it; settings that change scores are asked for or refused."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from diptych.common.errors import DiptychError
from diptych.data.tokens import PieceTokenizer
from diptych.matchers.base import Matcher
from diptych.matchers.convert.convert import Converted, convert, model_card, save_converted
from tests.matchers.convert import authors
from tests.matchers.convert.making import save, small_bert, state, vocabulary, vocabulary_file

V = len(vocabulary())
State = dict[str, Tensor]


def scan(**opt: Any) -> tuple[list[State], dict[str, Any]]:
    return state(authors.Fc(), authors.Words(V)), {"cross_attn": "t2i", "agg_func": "Mean", **opt}


def vsepp(**opt: Any) -> tuple[list[State], dict[str, Any]]:
    return state(authors.Fc(), authors.Words(V, bidirectional=False)), {"measure": "cosine", **opt}


def infinity(**opt: Any) -> tuple[list[State], dict[str, Any]]:
    return state(authors.InfinityRegions(), authors.Words(V, gpool=True)), {"margin": 0.2, **opt}


def grid(**opt: Any) -> tuple[list[State], dict[str, Any]]:
    model = state(authors.InfinityGrid(1), authors.Words(V, gpool=True))
    return model, {"backbone_source": "detector", "input_scale_factor": 0.25, **opt}


def camp(**opt: Any) -> tuple[list[State], dict[str, Any]]:
    return state(authors.Fc(), authors.Words(V), authors.Pair("gate_fusion_new", "sum")), {"bi_gru": True, **opt}


def dive(**opt: Any) -> tuple[State, dict[str, Any]]:
    model = authors.DivE(authors.DivEImage(4, 3), authors.DivEWords(V, 4, 3))
    return model.state_dict(), {"temperature": 16.0, **opt}


MODELS: dict[str, tuple[str, Callable[..., Any]]] = {
    "vse++": ("vse++", vsepp),
    "scan": ("scan", scan),
    "vse-infinity": ("vse-infinity", infinity),
    "vse-infinity-grid": ("vse-infinity", grid),
    "dive": ("dive", dive),
    "camp": ("camp", camp),
}


# Never used, or a second copy.
USELESS = ("num_batches_tracked", "mlp.bns.1.", "backbone.resnet.")


def tried(folder: Path, name: str, change: Callable[[Any], None] | None = None, **opt: Any) -> Converted:
    source, make = MODELS[name]
    model, settings = make(**opt)
    if change is not None:
        change(model)
    return convert(save(folder / "m.pth", model, **settings), source, vocabulary_file(folder))


def every(model: Any) -> list[tuple[State, str]]:
    return [(part, name) for part in (model if isinstance(model, list) else [model]) for name in part]


@pytest.mark.parametrize("name", MODELS)
def test_any_missing_tensor_is_named(name: str, tmp_path: Path) -> None:
    """All of them for the small models, a third for the others; but for those of no use."""
    source, make = MODELS[name]
    model, settings = make()
    words = vocabulary_file(tmp_path)
    chosen = [c for c in every(model) if not any(useless in c[1] for useless in USELESS)]
    for part, key in chosen if len(chosen) < 40 else chosen[::3]:
        tensor = part.pop(key)
        plain = key.removeprefix("img_enc.").removeprefix("txt_enc.")
        with pytest.raises(DiptychError, match=rf"m\.pth: the tensor '{plain}' of the \w+ side is missing"):
            convert(save(tmp_path / "m.pth", model, **settings), source, words)
        part[key] = tensor


@pytest.mark.parametrize("name", MODELS)
def test_a_left_over_tensor_is_named(name: str, tmp_path: Path) -> None:
    def change(model: Any) -> None:
        if isinstance(model, list):
            model[0]["attention_layer.weight"] = torch.zeros(2)
        else:
            model["img_enc.attention_layer.weight"] = torch.zeros(2)

    with pytest.raises(DiptychError, match=r"m\.pth: the tensor 'attention_layer.weight' of the image side is left"):
        tried(tmp_path, name, change)


@pytest.mark.parametrize(
    ("name", "tensor"),
    [
        ("scan", "1:rnn.weight_hh_l0"),
        ("vse++", "0:fc.bias"),
        ("vse-infinity", "0:mlp.layers.1.weight"),
        ("vse-infinity", "0:gpool.linear.weight"),
        ("vse-infinity", "1:gpool.gru.bias_hh_l0"),
        ("vse-infinity-grid", "0:backbone.base.1.running_mean"),
        ("vse-infinity-grid", "0:backbone.top.0.0.conv1.weight"),
        ("camp", "2:weighted_txt_key_fc.weight"),
        ("camp", "2:fc_out.3.weight"),
        ("dive", "img_enc.mlp.bn.bn.weight"),
        ("dive", "txt_enc.spm.agg_block.layers.2.0.fn.to_k.weight"),
        ("dive", "txt_enc.spm.agg_block.latents"),
    ],
)
def test_a_misshapen_tensor_is_named(name: str, tensor: str, tmp_path: Path) -> None:
    def change(model: Any) -> None:
        which, _, key = tensor.rpartition(":")
        part = model[int(which)] if which else model
        part[key] = torch.zeros(*part[key].shape[:-1], part[key].shape[-1] + 2)

    plain = tensor.rpartition(":")[2].removeprefix("img_enc.").removeprefix("txt_enc.")
    with pytest.raises(DiptychError, match=rf"'{plain}' of the \w+ side has shape \(.*\); expected \("):
        tried(tmp_path, name, change)


def test_a_tensor_of_other_dimensions_is_named(tmp_path: Path) -> None:
    with pytest.raises(DiptychError, match=r"'fc.weight' of the image side has shape \(8,\); expected 2 dimensions"):
        tried(tmp_path, "scan", lambda model: model[0].update({"fc.weight": torch.zeros(8)}))


def test_layers_that_do_not_share_their_weights_are_refused(tmp_path: Path) -> None:
    def change(model: State) -> None:
        model["img_enc.spm.agg_block.layers.2.0.fn.to_q.weight"] = torch.randn(12, 8)

    with pytest.raises(DiptychError, match=r"layers\.2\.0\.fn\.to_q\.weight.*layers\.1.*must be equal"):
        tried(tmp_path, "dive", change)


@pytest.mark.parametrize(
    ("name", "opt", "message"),
    [
        ("scan", {"cross_attn": None}, "opt.cross_attn is not in the file; give it with --option cross_attn="),
        ("scan", {"agg_func": "Min"}, "opt.agg_func: 'Min' cannot be converted; expected one of Mean, LogSumExp, Max"),
        ("scan", {"raw_feature_norm": "l3norm"}, "opt.raw_feature_norm: 'l3norm' cannot be converted; expected one of"),
        ("scan", {"lambda_softmax": -1}, "opt.lambda_softmax: expected a number above 0, got -1"),
        ("scan", {"no_txtnorm": True}, "opt.no_txtnorm is True"),
        ("vse++", {"measure": "euclid"}, "opt.measure: 'euclid'"),
        ("vse++", {"no_imgnorm": True}, "opt.no_imgnorm is True"),
        ("vse-infinity", {"no_imgnorm": True}, "opt.no_imgnorm is True"),
        ("camp", {"no_imgnorm": False}, "opt.no_imgnorm is False"),
        ("camp", {"self_attention": True}, "opt.self_attention is True"),
        ("camp", {"measure": "cross_attention"}, "is said to be 'cross_attention', and its tensors are of 'gate_fus"),
        ("camp", {"measure": "cosine"}, "opt.measure: 'cosine'"),
        ("dive", {"img_res_pool": "avg"}, "opt.img_res_pool is 'avg'"),
        ("dive", {"txt_attention_input": "rnn"}, "opt.txt_attention_input is 'rnn'"),
        ("dive", {"loss": "avg"}, "opt.loss: 'avg'"),
        ("dive", {"heads": 5}, "5 heads do not divide 12"),
    ],
)
def test_settings_that_change_scores_are_asked_for_or_refused(
    name: str, opt: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(DiptychError, match=message):
        tried(tmp_path, name, **opt)


def test_networks_over_pixels_are_refused_where_they_cannot_be_kept(tmp_path: Path) -> None:
    with pytest.raises(DiptychError, match=r"'cnn.module.conv1.weight' of the image side is of a network"):
        tried(tmp_path, "vse++", lambda model: model[0].update({"cnn.module.conv1.weight": torch.zeros(1)}))
    with pytest.raises(DiptychError, match=r"'cnn.conv1.weight' of the image side is of a network over pixels"):
        tried(tmp_path, "dive", lambda model: model.update({"img_enc.cnn.conv1.weight": torch.zeros(1)}))


def test_another_network_is_named(tmp_path: Path) -> None:
    def change(model: list[State]) -> None:
        model[0] = {k.replace("backbone.base.", "backbone.trunk."): v for k, v in model[0].items()}
        model[0] = {k: v for k, v in model[0].items() if ".resnet." not in k}

    with pytest.raises(DiptychError, match=r"'backbone.trunk.0.weight' of the image side is of a network that is not"):
        tried(tmp_path, "vse-infinity-grid", change)


def test_given_settings_win_and_strange_ones_are_refused(tmp_path: Path) -> None:
    model, settings = scan()
    path, words = save(tmp_path / "m.pth", model, **settings), vocabulary_file(tmp_path)
    converted = convert(path, "scan", words, options={"cross_attn": "i2t", "lambda_softmax": 3})
    assert converted.matcher.config.direction == "i2t"
    assert converted.matcher.config.softmax_lambda == 3
    assert converted.settings["cross_attn"] == "'i2t', given"
    assert converted.settings["agg_func"] == "'Mean', from the file"
    with pytest.raises(DiptychError, match="--option cross_atn: no setting of this model; did you mean 'cross_attn'"):
        convert(path, "scan", words, options={"cross_atn": "i2t"})


def test_without_settings_the_papers_are_assumed(tmp_path: Path) -> None:
    model, _ = scan()
    options = {"cross_attn": "i2t", "agg_func": "LogSumExp"}
    converted = convert(save(tmp_path / "m.pth", model), "scan", vocabulary_file(tmp_path), options=options)
    assert (converted.matcher.config.softmax_lambda, converted.matcher.config.lse_lambda) == (4.0, 5.0)
    assert converted.settings["lambda_softmax"] == "4.0, assumed"


def test_vocabulary_must_be_there_and_fit(tmp_path: Path) -> None:
    model, settings = scan()
    path = save(tmp_path / "m.pth", model, **settings)
    with pytest.raises(DiptychError, match=f"the words of its {V} embeddings are not in the file.*--vocabulary"):
        convert(path, "scan")
    model[1]["embed.weight"] = torch.zeros(V + 1, authors.W)
    with pytest.raises(DiptychError, match=f"has {V + 1} rows, and the vocabulary has {V} words"):
        convert(save(tmp_path / "m.pth", model, **settings), "scan", vocabulary_file(tmp_path))


def test_tokenizer_of_bert_must_be_there_and_fit(tiny_bert: str, tmp_path: Path) -> None:
    pieces = PieceTokenizer.load(tiny_bert).size
    model = state(authors.InfinityRegions(), authors.InfinityPieces(small_bert(pieces + 1)))
    path = save(tmp_path / "m.pth", model)
    with pytest.raises(DiptychError, match=f"has {pieces + 1} rows, and the tokenizer .* has {pieces} pieces"):
        convert(path, "vse-infinity", tokenizer=tiny_bert)
    with pytest.raises(DiptychError, match="needs no --vocabulary"):
        convert(path, "vse-infinity", vocabulary_file(tmp_path), tiny_bert)
    with pytest.raises(
        DiptychError, match=r"--tokenizer: .*nowhere: a tokenizer of this name is not in this machine's cache"
    ):
        convert(path, "vse-infinity", tokenizer=str(tmp_path / "nowhere"))


def test_an_unknown_source_is_named(tmp_path: Path) -> None:
    with pytest.raises(DiptychError, match=r"'vse-infinty' is no model.*did you mean 'vse-infinity'"):
        convert(tmp_path / "m.pth", "vse-infinty")


def test_copies_may_be_missing(tmp_path: Path) -> None:
    def change(model: list[State]) -> None:
        model[0] = {k: v for k, v in model[0].items() if ".resnet." not in k}

    tried(tmp_path, "vse-infinity-grid", change)


def test_a_module_that_is_none_of_the_three(tmp_path: Path) -> None:
    def change(model: list[State]) -> None:
        model[2] = {k: v for k, v in model[2].items() if not k.startswith("fc_")}

    with pytest.raises(DiptychError, match=r"'img_query_fc.weight' of the pair side is there without 'fc_1'"):
        tried(tmp_path, "camp", change)


def test_camp_without_its_pair_side(tmp_path: Path) -> None:
    with pytest.raises(DiptychError, match="the third state dictionary, of the pair side, is missing"):
        tried(tmp_path, "camp", lambda model: model.pop())


def test_counters_may_be_missing_and_half_precision_is_widened(tmp_path: Path) -> None:
    def change(model: list[State]) -> None:
        for part in model:
            for name in list(part):
                if name.endswith("num_batches_tracked"):
                    del part[name]
                else:
                    part[name] = part[name].half()

    matcher = tried(tmp_path, "vse-infinity", change).matcher
    assert {tensor.dtype for tensor in matcher.parameters()} == {torch.float32}


def test_the_card_says_where_it_came_from(tmp_path: Path) -> None:
    converted = tried(tmp_path, "dive", txt_pooling="max")
    card = model_card(converted)
    assert card.startswith("---\nlibrary_name: diptych\n")
    for line in (
        "- file: `m.pth`",
        f"- SHA-256: `{converted.checksum}`",
        "- legacy behaviour: `legacy_mask`",
        "- `txt_pooling`: 'max', from the file",
        "- `heads`: 4, assumed",
        "- `text.word_dim`: 7",
        "- `iterations`: 4",
    ):
        assert line in card.splitlines()
    assert str(tmp_path) not in card


def test_the_folder_is_whole_and_never_overwrites(tmp_path: Path) -> None:
    converted = tried(tmp_path, "vse-infinity")
    out = tmp_path / "deep" / "out"
    save_converted(converted, out)
    assert {p.name for p in out.iterdir()} == {"config.json", "model.safetensors", "vocabulary.json", "README.md"}
    assert [p.name for p in out.parent.iterdir()] == ["out"]
    again = Matcher.from_pretrained(out)
    assert again.config == converted.matcher.config
    for name, tensor in converted.matcher.state_dict().items():
        assert torch.equal(again.state_dict()[name], tensor)
    with pytest.raises(DiptychError, match="already there"):
        save_converted(converted, out)
    (tmp_path / "empty").mkdir()
    save_converted(converted, tmp_path / "empty")
    assert (tmp_path / "empty" / "config.json").is_file()
