"""Two processes give the gradients of one with the batch put together."""

from dataclasses import replace
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from diptych.common.process_group import before_group, end_group
from diptych.data.batches import Tokens
from diptych.data.collection import Collection
from diptych.data.tokens import WordTokenizer, encode
from diptych.data.vocabulary import Vocabulary
from diptych.encoders.images import FeatureConfig
from diptych.encoders.texts import GRUConfig
from diptych.matchers.base import Matcher
from diptych.matchers.camp import CAMPConfig
from diptych.matchers.catalog import MatcherConfig, build_matcher
from diptych.matchers.vse import VSEConfig
from diptych.training import counted_scores
from diptych.training.batches import Augmentation, RunDataset, share
from diptych.training.gather import gather
from diptych.training.losses.bce import BCEConfig
from diptych.training.losses.catalog import LossConfig, build_loss
from diptych.training.losses.hinge import HingeConfig
from tests.training import toy

IMAGE, TEXT = FeatureConfig(feature_dim=8), GRUConfig(word_dim=6)
CASES: dict[str, tuple[MatcherConfig, LossConfig]] = {
    "vse": (VSEConfig(dim=8, image=IMAGE, text=TEXT), HingeConfig(negatives="all")),
    "camp": (CAMPConfig(dim=8, image=IMAGE, text=TEXT), BCEConfig()),
    "foils": (VSEConfig(dim=8, image=IMAGE, text=TEXT), HingeConfig(negatives="all")),
    "camp, those that count": (CAMPConfig(dim=8, image=IMAGE, text=TEXT), BCEConfig()),
    "camp, those that count, foils": (CAMPConfig(dim=8, image=IMAGE, text=TEXT), HingeConfig(margin=0.5)),
}
# Nobody's captions, behind those of each process.
FOILS = [["a red house"], ["a big boat and a dog", "blue"]]
PAIRS = [(0, 0), (1, 0), (0, 1), (2, 0), (3, 1), (4, 0), (1, 1)]


def gradients(name: str, rank: int, world: int) -> dict[str, torch.Tensor]:
    data = toy.collection()
    config, loss = CASES[name]
    torch.manual_seed(0)
    matcher = build_matcher(config, WordTokenizer(Vocabulary.build(data.captions()[0], at_least=1)))
    batch = RunDataset(data, matcher.tokenizer, None, Augmentation(), lambda epoch: [PAIRS], 0, rank, world)[0, 0]
    if "foils" in name:
        batch = replace(batch, texts=_with_foils(data, matcher, rank, world))
    module: torch.nn.Module = matcher if world == 1 else torch.nn.parallel.DistributedDataParallel(matcher)
    whole = gather(*module(batch.images, batch.texts), batch.picture_ids, batch.owners)
    function = build_loss(loss)
    if world > 1 and "count" in name:
        counted_scores.PLAIN, counted_scores.FEW = 0, 1.0
        scores = counted_scores.batch_scores(matcher, whole.images, whole.texts, logits=function.takes_logits)
        assert type(scores.grad_fn).__name__ == "_CountedScoresBackward"
    else:
        scores = (matcher.logits if function.takes_logits else matcher.score)(whole.images, whole.texts)
    function(scores, whole.owners, whole.positive).backward()
    return {n: p.grad.clone() for n, p in _named(matcher)}


def _with_foils(data: Collection, matcher: Matcher, rank: int, world: int) -> Tokens:
    """A process's captions, then its foils; one process has all of them."""
    captions = [data.items[i].sentences[c].text for i, c in share(PAIRS, rank, world)]
    foils = FOILS[rank] if world > 1 else [text for some in FOILS for text in some]
    return encode(matcher.tokenizer, captions + foils)


def _named(matcher: Matcher) -> list[tuple[str, torch.nn.Parameter]]:
    return [(n, p) for n, p in matcher.named_parameters() if p.grad is not None]


def work(rank: int, world: int, folder: str) -> None:
    torch.set_num_threads(1)
    before_group()
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=world)
    for name in CASES:
        torch.save(gradients(name, rank, world), f"{folder}/{name}-{rank}.pt")
    dist.barrier()  # a process that leaves early would tear the other's connection
    end_group()


def test_two_processes_give_the_gradients_of_one(tmp_path: Path) -> None:
    for attempt in range(3):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        try:
            mp.spawn(work, args=(2, str(folder)), nprocs=2)
            break
        except mp.ProcessExitedException as error:
            # gloo's own threads abort now and then when the processes meet or part; a wrong gradient is no abort.
            if error.exit_code != -6 or attempt == 2:
                raise
    for name in CASES:
        alone = gradients(name, 0, 1)
        assert alone
        for rank in range(2):
            together = torch.load(folder / f"{name}-{rank}.pt", weights_only=True)
            assert together.keys() == alone.keys()
            for part, gradient in alone.items():
                torch.testing.assert_close(together[part], gradient, atol=1e-6, rtol=1e-4, msg=f"{name}: {part}")
