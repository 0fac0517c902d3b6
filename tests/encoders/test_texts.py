from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from diptych.data.batches import Tokens, pad_tokens
from diptych.encoders.texts import GRUConfig, GRUEncoder, TransformerConfig, TransformerEncoder, build_text_encoder

SENTENCES = [[1, 4, 5, 2], [3], [1, 4, 5, 2], [1, 6, 7, 4, 3, 2]]
WORDS = [f"w{i}" for i in range(8)]


def tokens(extra: int = 0) -> Tokens:
    """A padded batch; `extra` columns hold a real word's number that must not matter."""
    batch = pad_tokens(SENTENCES)
    ids = torch.cat([batch.ids, torch.full((len(batch), extra), 5)], 1)
    return Tokens(ids, torch.cat([batch.mask, torch.zeros(len(batch), extra, dtype=torch.bool)], 1))


def gru_steps(rnn: nn.GRU, layer: int, suffix: str, inputs: list[Tensor]) -> list[Tensor]:
    """One direction of one layer, a step at a time, from the formulas."""
    weight_i, weight_h, bias_i, bias_h = (
        getattr(rnn, f"{name}_l{layer}{suffix}") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    )
    size = rnn.hidden_size
    state, states = torch.zeros(size), []
    for x in inputs:
        of_input, of_state = weight_i @ x + bias_i, weight_h @ state + bias_h
        reset = torch.sigmoid(of_input[:size] + of_state[:size])
        update = torch.sigmoid(of_input[size : 2 * size] + of_state[size : 2 * size])
        new = torch.tanh(of_input[2 * size :] + reset * of_state[2 * size :])
        state = (1 - update) * new + update * state
        states.append(state)
    return states


def slow_gru(encoder: GRUEncoder, ids: list[int]) -> tuple[Tensor, Tensor]:
    """A sentence's vectors (words, d) and last state (d,), directions averaged."""
    inputs = [encoder.embed.weight[i] for i in ids]
    for layer in range(encoder.config.layers):
        forward = gru_steps(encoder.rnn, layer, "", inputs)
        if not encoder.config.bidirectional:
            inputs = forward
            continue
        backward = gru_steps(encoder.rnn, layer, "_reverse", inputs[::-1])[::-1]
        inputs = [torch.cat(pair) for pair in zip(forward, backward, strict=True)]
    if not encoder.config.bidirectional:
        return torch.stack(inputs), inputs[-1]
    vectors = torch.stack([(f + b) / 2 for f, b in zip(forward, backward, strict=True)])
    return vectors, (forward[-1] + backward[0]) / 2  # each direction ends at its own end


@pytest.mark.parametrize(("bidirectional", "layers"), [(True, 1), (False, 1), (True, 2)])
@pytest.mark.parametrize("extra", [0, 3])
def test_a_padded_batch_equals_each_sentence_word_by_word(bidirectional: bool, layers: int, extra: int) -> None:
    encoder = GRUEncoder(GRUConfig(word_dim=5, bidirectional=bidirectional, layers=layers), 4, WORDS, True).eval()
    with torch.no_grad():
        out = encoder(tokens(extra))
        assert out.whole is not None
        for i, ids in enumerate(SENTENCES):
            vectors, last = slow_gru(encoder, ids)
            torch.testing.assert_close(out.vectors[i, : len(ids)], vectors, atol=1e-5, rtol=1e-4)
            torch.testing.assert_close(out.whole[i], last, atol=1e-5, rtol=1e-4)
            torch.testing.assert_close(out.inputs[i, : len(ids)], encoder.embed.weight[torch.tensor(ids)])
    assert out.vectors.shape == (4, 6 + extra, 4)
    assert torch.equal(out.mask, tokens(extra).mask)


def test_embeddings_start_between_minus_and_plus_a_tenth(tmp_path: Path) -> None:
    encoder = GRUEncoder(GRUConfig(word_dim=300), 4, WORDS, True)
    weights = encoder.embed.weight.detach()
    assert 0.098 < float(weights.abs().max()) <= 0.1
    assert float(weights.mean().abs()) < 0.01


def test_pretrained_vectors_fill_the_words_they_know(tmp_path: Path) -> None:
    (tmp_path / "vectors.txt").write_text("w2 1 2 3\nother 9 9 9\nw5 4 5 6\n")
    config = GRUConfig(word_dim=3, vectors=str(tmp_path / "vectors.txt"))
    encoder = build_text_encoder(config, 4, WORDS)
    assert isinstance(encoder, GRUEncoder)
    assert encoder.embed.weight[2].tolist() == [1, 2, 3]
    assert encoder.embed.weight[5].tolist() == [4, 5, 6]
    assert float(encoder.embed.weight[[0, 1, 3, 4]].detach().abs().max()) <= 0.1
    (tmp_path / "vectors.txt").unlink()
    build_text_encoder(config, 4, WORDS, assets=tmp_path)  # a saved matcher brings its own, and needs no file


def transformer(name: str, **changes: bool) -> TransformerEncoder:
    encoder = build_text_encoder(TransformerConfig(name=name, **changes), 8, WORDS)
    assert isinstance(encoder, TransformerEncoder)
    return encoder


def test_pieces_are_projected_and_the_first_stands_for_the_whole(tiny_bert: str) -> None:
    encoder = transformer(tiny_bert).eval()
    with torch.no_grad():
        out = encoder(tokens())
        for i, ids in enumerate(SENTENCES):  # alone, without padding
            alone = torch.tensor([ids])
            hidden = encoder.backbone(alone, torch.ones_like(alone)).last_hidden_state[0]
            torch.testing.assert_close(out.inputs[i, : len(ids)], hidden, atol=1e-5, rtol=1e-4)
            torch.testing.assert_close(out.vectors[i, : len(ids)], encoder.fc(hidden), atol=1e-5, rtol=1e-4)
    assert out.whole is not None
    assert torch.equal(out.whole, out.vectors[:, 0])


def test_what_stands_in_the_padding_does_not_matter(tiny_bert: str) -> None:
    encoder = transformer(tiny_bert).eval()
    with torch.no_grad():
        plain, padded = encoder(tokens()), encoder(tokens(3))
    mask = plain.mask
    torch.testing.assert_close(plain.vectors[mask], padded.vectors[:, :6][mask], atol=1e-5, rtol=1e-4)


def test_a_frozen_encoder_is_in_eval_mode_from_the_start_and_in_training(tiny_bert: str) -> None:
    encoder = transformer(tiny_bert, frozen=True)
    for _ in range(2):
        assert encoder.training
        assert not any(module.training for module in encoder.backbone.modules())
        first, second = encoder(tokens()), encoder(tokens())
        assert torch.equal(first.vectors, second.vectors)  # no dropout
        encoder.train()
    first.vectors.sum().backward()
    assert all(p.grad is None and not p.requires_grad for p in encoder.backbone.parameters())
    assert encoder.fc.weight.grad is not None


def test_a_tuned_encoder_trains_every_parameter_with_dropout(tiny_bert: str) -> None:
    encoder = transformer(tiny_bert).train()
    first, second = encoder(tokens()), encoder(tokens())
    assert not torch.equal(first.vectors, second.vectors)
    first.vectors.square().sum().backward()
    assert [n for n, p in encoder.named_parameters() if p.grad is None] == []


def test_frozen_embeddings_alone(tiny_bert: str) -> None:
    encoder = transformer(tiny_bert, frozen_embeddings=True)
    encoder(tokens()).vectors.square().sum().backward()
    assert all(p.grad is None for p in encoder.backbone.embeddings.parameters())
    assert all(p.grad is not None for p in encoder.backbone.encoder.parameters())


def test_a_transformer_is_rebuilt_from_its_assets(tiny_bert: str, tmp_path: Path) -> None:
    first = transformer(tiny_bert).eval()
    first.save_assets(tmp_path)
    assert not list(tmp_path.rglob("*.safetensors"))
    again = build_text_encoder(TransformerConfig(name="gone"), 8, WORDS, tmp_path).eval()
    again.load_state_dict(first.state_dict())
    with torch.no_grad():
        assert torch.equal(first(tokens()).vectors, again(tokens()).vectors)
