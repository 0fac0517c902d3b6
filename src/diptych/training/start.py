"""What a run begins with: a new matcher, or one with the weights of another run."""

from pathlib import Path

from diptych.common.errors import DiptychError
from diptych.common.model_place import find_model, model_folder
from diptych.data.tokens import WordTokenizer
from diptych.data.vocabulary import Vocabulary
from diptych.matchers.base import Matcher
from diptych.matchers.catalog import build_matcher, build_tokenizer, load_weights, needs_vocabulary
from diptych.training.data import Splits
from diptych.training.recipe import Recipe


def build_for(recipe: Recipe, splits: Splits) -> Matcher:
    """A new matcher with the tokenizer that its training captions call for."""
    if getattr(recipe.model, "hubs", None) is not None:
        raise DiptychError("model.hubs: found after training, by `diptych level`; expected none in a recipe")
    vocabulary = None
    if needs_vocabulary(recipe.model.text):
        if recipe.data.vocabulary is not None:
            vocabulary = Vocabulary.load(Path(recipe.data.vocabulary))
        else:
            vocabulary = Vocabulary.build(splits.train.captions()[0], recipe.data.at_least)
    return build_matcher(recipe.model, build_tokenizer(recipe.model.text, vocabulary))


def take_weights(matcher: Matcher, source: str) -> None:
    """Give a new matcher the weights of a run's best checkpoint, or of a saved matcher; all must fit.

    Where the new one takes local features that the other's backbone computes, that backbone stays where it is; so do
    hubs, which are of finished weights.
    """
    folder = find_model(source).folder
    if folder is None or not (folder / "model.safetensors").is_file():
        raise DiptychError(f"{source}: no weights to begin with; expected a run folder or a saved matcher's")
    words = folder / "vocabulary.json"
    theirs = Vocabulary.load(words).words if words.is_file() else None
    if isinstance(matcher.tokenizer, WordTokenizer) and theirs not in (None, matcher.tokenizer.vocabulary.words):
        raise DiptychError(f"{words}: has other words than this recipe; give data.vocabulary={words} as well")
    features = matcher.feature_source
    computed = features is not None and features.backbone is not None and model_folder(features.backbone) == folder
    try:
        left = ("image_hubs.", "text_hubs.", *(["image_encoder.backbone."] if computed else []))
        load_weights(matcher, folder / "model.safetensors", left)
    except DiptychError as error:
        raise DiptychError(f"{error}; to begin with its weights a recipe must have its model") from None
