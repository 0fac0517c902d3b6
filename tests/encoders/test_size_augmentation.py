import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from diptych.data.batches import LocalFeatures
from diptych.data.tokens import PieceTokenizer, WordTokenizer
from diptych.data.vocabulary import Vocabulary
from diptych.encoders.size_augmentation import drop_cells, drop_regions, drop_words

WORDS = [f"w{i}" for i in range(40)]


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def numbered(mask: torch.Tensor) -> LocalFeatures:
    """Regions that carry their own position, pads 77."""
    positions = torch.arange(mask.shape[1]).float().expand(mask.shape).masked_fill(~mask, 77)
    return LocalFeatures(positions.unsqueeze(-1).repeat(1, 1, 2), mask)


@given(st.lists(st.integers(1, 12), min_size=1, max_size=8), st.sampled_from([0.0, 0.2, 0.9, 1.0]), st.integers(0, 99))
@settings(max_examples=50, deadline=None)
def test_regions_that_stay_come_first_in_order_and_never_all_go(sizes: list[int], p: float, seed: int) -> None:
    mask = torch.arange(12) < torch.tensor(sizes).unsqueeze(1)
    out = drop_regions(numbered(mask), p, generator(seed))
    assert out.mask.shape[1] == int(out.mask.sum(1).max())
    for i, size in enumerate(sizes):
        kept = out.vectors[i, out.mask[i], 0].tolist()
        assert 1 <= len(kept) <= size
        assert kept == sorted(set(kept))
        assert max(kept) < size
        assert out.mask[i].tolist() == sorted(out.mask[i].tolist(), reverse=True)
        if p == 0:
            assert len(kept) == size
        if p == 1:
            assert len(kept) == 1
    assert out.vectors[~out.mask].abs().sum() == 0


def test_a_fifth_of_the_regions_go() -> None:
    batch = numbered(torch.ones(500, 36, dtype=torch.bool))
    out = drop_regions(batch, 0.2, generator())
    assert float(out.mask.sum()) / (500 * 36) == pytest.approx(0.8, abs=0.01)


def test_the_same_generator_drops_the_same() -> None:
    batch = numbered(torch.ones(9, 36, dtype=torch.bool))
    first, again, other = (drop_regions(batch, 0.2, generator(seed)) for seed in (4, 4, 5))
    assert torch.equal(first.vectors, again.vectors)
    assert first.vectors.shape != other.vectors.shape or not torch.equal(first.vectors, other.vectors)


def test_words_are_hidden_replaced_and_dropped_in_the_papers_shares() -> None:
    tokenizer = WordTokenizer(Vocabulary(["<pad>", "<start>", "<end>", "<unk>", "<mask>", *WORDS]))
    ids = [1, *range(5, 25), 2]
    rng = generator()
    hidden = gone = replaced = 0
    for _ in range(2000):
        out = drop_words(ids, tokenizer, 0.2, rng)
        assert out[0] == 1
        assert out[-1] == 2
        assert not tokenizer.special_ids & set(out[1:-1])
        hidden += out.count(tokenizer.mask_id)
        gone += len(ids) - len(out)
        replaced += sum(number > 24 for number in out)  # a random token that the sentence did not have
    total = 2000 * 20
    assert hidden / total == pytest.approx(0.1, abs=0.01)
    assert gone / total == pytest.approx(0.08, abs=0.01)
    assert replaced / total == pytest.approx(0.02 * 20 / 42, abs=0.004)


@given(st.lists(st.integers(4, 43), min_size=0, max_size=4), st.integers(0, 999))
@settings(max_examples=100, deadline=None)
def test_never_do_all_words_go(words: list[int], seed: int) -> None:
    tokenizer = WordTokenizer(Vocabulary(["<pad>", "<start>", "<end>", "<unk>", *WORDS]))
    out = drop_words([1, *words, 2], tokenizer, 1.0, generator(seed))
    assert out[0] == 1
    assert out[-1] == 2
    assert min(1, len(words)) <= len(out) - 2 <= len(words)


def test_nothing_happens_to_words_at_probability_zero() -> None:
    tokenizer = WordTokenizer(Vocabulary(["<pad>", "<start>", "<end>", "<unk>", *WORDS]))
    assert drop_words([1, 7, 8, 2], tokenizer, 0.0, generator()) == [1, 7, 8, 2]


def test_pieces_of_a_word_share_its_fate_and_special_pieces_stay(tiny_bert: str) -> None:
    tokenizer = PieceTokenizer.load(tiny_bert)
    ids = tokenizer.ids("two dogs")  # [CLS] two dog ##s [SEP]
    cls, two, dog, s, sep = ids
    rng = generator(1)
    seen = set()
    for _ in range(300):
        out = drop_words(ids, tokenizer, 0.7, rng)
        assert out[0] == cls
        assert out[-1] == sep
        if out.count(tokenizer.mask_id) == 0 and len(out) < len(ids):
            assert (dog in out) == (s in out) or two not in out
        seen.add(tuple(out))
    assert (cls, two, tokenizer.mask_id, tokenizer.mask_id, sep) in seen
    assert (cls, two, sep) in seen
    assert (cls, two, dog, sep) not in seen
    assert (cls, dog, s, sep) in seen


def test_a_tenth_of_the_cells_go_and_grids_with_a_small_draw_stay_whole() -> None:
    mask = torch.ones(4000, 64, dtype=torch.bool)
    out = drop_cells(mask, generator())
    assert 1 - float(out.float().mean()) == pytest.approx(0.096, abs=0.006)
    whole = float(out.all(1).float().mean())
    assert 0.2 < whole < 0.25  # u <= 0.2 leaves a grid whole; a few more are by luck


def test_cells_that_were_padding_stay_padding_and_a_lone_cell_stays() -> None:
    mask = torch.zeros(200, 9, dtype=torch.bool)
    mask[:, 4] = True
    assert torch.equal(drop_cells(mask, generator()), mask)
