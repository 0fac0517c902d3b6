"""What a frozen text backbone makes of the training sentences: computed once, and held on the training device."""

from typing import Any, Self

import torch
from torch import Tensor

from diptych.common.errors import DiptychError
from diptych.common.progress import progress_bar
from diptych.data.batches import ReadTokens
from diptych.data.collection import Collection
from diptych.matchers.base import Matcher
from diptych.training.held_features import HeldRows, empty

CHUNK = 256  # sentences that go through the backbone at once


class HeldSentences:
    """The tokens of a collection's sentences, in its order, with the backbone's last hidden states, on a device.

    ids: (all tokens,); hidden: (all tokens, h)
    starts: (sentences + 1,), where each sentence's tokens begin; on the CPU
    """

    def __init__(self, ids: Tensor, hidden: Tensor, starts: Tensor) -> None:
        self.ids, self.hidden, self.starts = ids, hidden, starts

    @classmethod
    def read(cls, collection: Collection, matcher: Matcher, half: torch.dtype | None = None) -> Self:
        """All sentences of a collection through the backbone; half: what products are computed in, and kept in."""
        encoder: Any = matcher.text_encoder
        if not getattr(encoder, "frozen", False):
            raise DiptychError("training.hold_sentences: expected model.text of kind 'transformer' with frozen = true")
        device = matcher.device
        sentences = [matcher.tokenizer.ids(text) for text in collection.captions()[0]]
        lengths = torch.tensor([len(ids) for ids in sentences])
        starts = torch.cat([torch.zeros(1, dtype=torch.long), lengths.cumsum(0)])
        rows, width = int(starts[-1]), encoder.backbone.config.hidden_size
        hidden = empty(rows, width, half or torch.float32, device, "training.hold_sentences")
        order = lengths.argsort(stable=True)  # those of like length together: little is padding
        with progress_bar("sentences") as bar, torch.no_grad(), torch.autocast(device.type, half, half is not None):
            task = bar.add_task("sentences to the device", total=len(sentences), note="")
            for few in order.split(CHUNK):
                tokens = matcher.tokenizer.pad([sentences[i] for i in few.tolist()])
                places = (starts[few].unsqueeze(1) + torch.arange(tokens.mask.shape[1]))[tokens.mask]
                found = encoder.read(tokens.to(device))[tokens.mask.to(device)]
                hidden[places.to(device)] = found.to(hidden.dtype)
                bar.advance(task, len(few))
        return cls(torch.tensor([i for ids in sentences for i in ids], device=device), hidden, starts)

    def cut(self, asked: HeldRows) -> ReadTokens:
        """The sentences that a step asks for; `asked` is on the same device."""
        outside = ~asked.mask
        hidden = self.hidden[asked.rows].masked_fill_(outside.unsqueeze(-1), 0)
        return ReadTokens(self.ids[asked.rows].masked_fill_(outside, 0), asked.mask, hidden)
