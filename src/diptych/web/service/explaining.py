"""Why a picture and a sentence match, by the models that the server has."""

from copy import copy, deepcopy
from typing import Any

from PIL import Image

from diptych.common.errors import DiptychError
from diptych.data.collection import Open
from diptych.data.open_picture import open_picture
from diptych.explain.explain import explain
from diptych.explain.why import told_of
from diptych.explain.words import sentence_words
from diptych.matchers.base import Matcher
from diptych.search.index import Index
from diptych.web.errors import NotFound

# Leaving out each word in turn takes a pass of the model for each of them.
MOST_WORDS = 40


class Explainer:
    """Explains with the searching model ("fast") or the re-ranking one ("reranker"); for one thread alone."""

    def __init__(self, index: Index, rerank: str | None) -> None:
        self.index = index
        self.rerank = rerank
        self._own: dict[str, Matcher] = {}

    def explain(self, picture: Image.Image | Open, sentence: str, model: str) -> dict[str, Any]:
        """All arrays, and which of them to show for what, as plain data."""
        matcher = self.matcher(model)
        words = len(sentence_words(matcher.tokenizer, sentence))
        if words > MOST_WORDS:
            raise DiptychError(f"sentence: {words} words; at most {MOST_WORDS} are explained")
        if not isinstance(picture, Image.Image):
            try:
                picture = open_picture(picture, matcher.extractor().size)
            except DiptychError:
                raise NotFound("the picture of this entry cannot be read any more") from None
        return told_of(explain(matcher, picture, sentence))

    def matcher(self, model: str) -> Matcher:
        """A model for this thread: it shares all weights, but not the tokenizer, which others may be using."""
        if model not in self._own:
            matcher = self._shared(model).eval()
            own = self._own[model] = copy(matcher)
            own.tokenizer = deepcopy(matcher.tokenizer)
        return self._own[model]

    def _shared(self, model: str) -> Matcher:
        if model == "reranker":
            if self.rerank is None:
                raise DiptychError("model: this server has no re-ranking model; start it with --rerank MODEL")
            return self.index.searcher.reranker(self.rerank).matcher
        if model != "fast":
            raise DiptychError(f"model: {model!r} is not known; expected 'fast' or 'reranker'")
        return self.index.embedder.matcher
