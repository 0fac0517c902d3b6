"""Every matcher, listed once: a new one adds its config to the union and a line to the table."""

from pathlib import Path
from typing import Any

from safetensors.torch import load_file

from diptych.common.config import parse, read_json
from diptych.common.errors import DiptychError, nearest
from diptych.common.hub import hub_sentence
from diptych.common.model_place import find_model
from diptych.data.tokens import Tokenizer, WordTokenizer, load_pieces, load_tokenizer
from diptych.data.vocabulary import Vocabulary
from diptych.encoders.sources import MATCHER_FORMAT, text_source
from diptych.encoders.texts import GRUConfig, TextConfig, TransformerConfig
from diptych.encoders.towers import TowerConfig, is_hugging_face, token_limit
from diptych.matchers.base import Matcher
from diptych.matchers.camp import CAMP, CAMPConfig
from diptych.matchers.clip import CLIP, CLIPConfig, pretrained_towers
from diptych.matchers.dive import DivE, DivEConfig
from diptych.matchers.mmca import MMCA, MMCAConfig
from diptych.matchers.scan import SCAN, SCANConfig
from diptych.matchers.vse import VSE, VSEConfig

MatcherConfig = VSEConfig | SCANConfig | CAMPConfig | MMCAConfig | DivEConfig | CLIPConfig
MATCHERS: dict[str, tuple[Any, Any]] = {
    "vse": (VSEConfig, VSE),
    "scan": (SCANConfig, SCAN),
    "camp": (CAMPConfig, CAMP),
    "mmca": (MMCAConfig, MMCA),
    "dive": (DivEConfig, DivE),
    "clip": (CLIPConfig, CLIP),
}


def matcher_title(kind: str) -> str:
    """A matcher's name for people."""
    title: str = MATCHERS[kind][1].title
    return title


def parse_matcher_config(tree: Any, where: str) -> MatcherConfig:
    """The config that a tree's `kind` names."""
    kind = tree.get("kind") if isinstance(tree, dict) else None
    if not isinstance(kind, str) or kind not in MATCHERS:
        raise DiptychError(f"kind: {kind!r} is no matcher; {nearest(str(kind), list(MATCHERS))}", where=where)
    config: MatcherConfig = parse(MATCHERS[kind][0], tree, where)
    return config


def needs_vocabulary(config: TextConfig) -> bool:
    """Whether a text encoder reads words, which are counted in the captions; others bring their own pieces."""
    return isinstance(config, GRUConfig)


def build_tokenizer(config: TextConfig, vocabulary: Vocabulary | None) -> Tokenizer:
    """The tokenizer that goes with a text encoder.

    >>> config = parse_matcher_config({"kind": "vse"}, "here")
    >>> build_tokenizer(config.text, Vocabulary.build(["a dog"], at_least=1)).pieces([4, 5])
    ['a', 'dog']
    """
    if isinstance(config, TransformerConfig):
        return load_pieces(text_source(config.name), config.limit)
    if isinstance(config, TowerConfig):
        return load_pieces(config.name, config.limit or token_limit(config.name))
    if vocabulary is None:
        raise DiptychError("a GRU text encoder needs a vocabulary")
    return WordTokenizer(vocabulary, config.limit)


def build_matcher(config: MatcherConfig, tokenizer: Tokenizer, assets: Path | None = None) -> Matcher:
    """A new matcher with pretrained backbones; with `assets` (a saved folder), its architecture alone.

    >>> config = parse_matcher_config({"kind": "scan", "dim": 8}, "here")
    >>> build_matcher(config, build_tokenizer(config.text, Vocabulary.build(["a dog"], at_least=1))).title
    'SCAN'
    """
    matcher: Matcher = MATCHERS[config.kind][1](config, tokenizer, assets)
    return matcher


def load_matcher(source: str | Path) -> Matcher:
    """A saved matcher by any word that `find_model` knows, weights checked name by name and shape by shape.

    A CLIP or SigLIP model of Hugging Face is taken as it is.
    """
    place = find_model(source)
    theirs = place.name if place.folder is None else str(place.folder)
    if is_hugging_face(theirs):
        towers = pretrained_towers(theirs)
        return build_matcher(towers, build_tokenizer(towers.text, None)).eval()
    folder = place.folder or _download(place.name)
    tree = read_json(folder / "config.json")
    if not isinstance(tree, dict) or tree.get("format") != MATCHER_FORMAT:
        raise DiptychError(f"format: expected {MATCHER_FORMAT!r}", where=folder / "config.json")
    config = parse_matcher_config(tree.get("matcher"), f"{folder / 'config.json'}: matcher")
    limit = config.text.limit
    if isinstance(config.text, TowerConfig):
        limit = limit or token_limit(config.text.name, folder)
    matcher = build_matcher(config, load_tokenizer(folder, limit), assets=folder)
    load_weights(matcher, folder / "model.safetensors")
    return matcher.eval()


def load_weights(matcher: Matcher, path: Path, without: tuple[str, ...] = ()) -> None:
    """Load weights strictly: a missing, left-over or misshapen one is an error that names it.

    without: prefixes of the file's weights that are not looked at
    """
    if not path.is_file():
        raise DiptychError("no such file; expected the matcher's weights", where=path)
    try:
        tensors = {name: tensor for name, tensor in load_file(path).items() if not name.startswith(without)}
    except Exception as error:
        raise DiptychError(f"not a readable safetensors file: {error}", where=path) from None
    expected = {n: t for n, t in matcher.state_dict().items() if not n.startswith(matcher.external)}
    for name, tensor in expected.items():
        if name not in tensors:
            raise DiptychError(f"the weight {name!r} is missing", where=path)
        if tensors[name].shape != tensor.shape:
            raise DiptychError(
                f"the weight {name!r} has shape {tuple(tensors[name].shape)}; expected {tuple(tensor.shape)}",
                where=path,
            )
    extra = sorted(tensors.keys() - expected.keys())
    if extra:
        raise DiptychError(f"the weight {extra[0]!r} is left over: this matcher has no such part", where=path)
    matcher.load_state_dict(tensors, strict=False)  # every name was checked above


def _download(name: str) -> Path:
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        raise DiptychError("no such folder; to load from the hub install diptych[hub]", where=name) from None
    try:
        return Path(snapshot_download(name))
    except Exception as error:
        raise DiptychError(hub_sentence(name, error, "a matcher or model"), where=name) from None
