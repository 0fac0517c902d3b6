"""Small untrained models for search, saved to disk, and folders of small pictures."""

import json
from pathlib import Path

import torch
from transformers import CLIPConfig, CLIPModel, PreTrainedTokenizerFast, SiglipConfig, SiglipModel

from diptych.data.tokens import WordTokenizer
from diptych.data.vocabulary import Vocabulary
from diptych.encoders.images import FeatureConfig, PixelConfig
from diptych.encoders.texts import GRUConfig
from diptych.matchers.camp import CAMPConfig
from diptych.matchers.catalog import MatcherConfig, build_matcher
from diptych.matchers.dive import DivEConfig
from diptych.matchers.vse import VSEConfig
from tests.encoders.pictures import picture
from tests.encoders.tiny_models import TEXT, TRANSFORMER, save, stirred, vit

WORDS = "a red blue big small dog cat boat sits runs left of the on and two three snow grass".split()
SIDE = 32


def save_matcher(folder: Path, config: MatcherConfig) -> str:
    torch.manual_seed(3)
    matcher = build_matcher(config, WordTokenizer(Vocabulary.build([" ".join(WORDS)], at_least=1)))
    stirred(matcher)
    matcher.save_pretrained(folder)
    return str(folder)


def save_vse(folder: Path) -> str:
    """VSE over a tiny vision transformer's pixels."""
    torch.manual_seed(0)
    backbone = save(stirred(vit()), folder.with_name(folder.name + "-vit"))
    image = PixelConfig(backbone=backbone, size=SIDE)
    text = GRUConfig(word_dim=7)
    return save_matcher(folder, VSEConfig(dim=8, image=image, text=text, image_pool="max", text_pool="mean"))


def save_dive(folder: Path) -> str:
    """DivE, sets of two, over features of a tiny vision transformer."""
    torch.manual_seed(0)
    backbone = save(stirred(vit()), folder.with_name(folder.name + "-vit"))
    image = FeatureConfig(feature_dim=12, projection="residual-hidden", backbone=backbone, size=SIDE)
    return save_matcher(
        folder, DivEConfig(dim=8, image=image, text=GRUConfig(word_dim=7), slots=2, iterations=2, heads=2, head_dim=4)
    )


def save_camp(folder: Path, backbone: str) -> str:
    """CAMP over the features of a backbone, or of a saved matcher's."""
    image = FeatureConfig(feature_dim=12, backbone=backbone, size=SIDE)
    return save_matcher(folder, CAMPConfig(dim=8, image=image, text=GRUConfig(word_dim=7)))


def _tokenizer(folder: Path) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    vocabulary = {word: i for i, word in enumerate(["<pad>", "<eos>", "<unk>", *WORDS[:16]])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(single="$A <eos>", special_tokens=[("<eos>", 1)])
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>"
    ).save_pretrained(folder)


def save_clip(folder: Path, processor: dict[str, object] | None = None) -> str:
    torch.manual_seed(0)
    text = TEXT | {"max_position_embeddings": 12, "eos_token_id": 1, "pad_token_id": 0}
    model = CLIPModel(CLIPConfig(text_config=text, vision_config=TRANSFORMER | {"image_size": SIDE}, projection_dim=6))
    stirred(model).save_pretrained(folder)
    _tokenizer(folder)
    if processor is not None:
        (folder / "preprocessor_config.json").write_text(json.dumps(processor))
    return str(folder)


def save_siglip(folder: Path) -> str:
    torch.manual_seed(0)
    text = TEXT | {"max_position_embeddings": 12, "pad_token_id": 0}
    model = SiglipModel(SiglipConfig(text_config=text, vision_config=TRANSFORMER | {"image_size": SIDE}))
    stirred(model).save_pretrained(folder)
    _tokenizer(folder)
    return str(folder)


def fill(folder: Path, count: int, start: int = 0, suffix: str = ".png") -> Path:
    """Pictures 000.png, 001.png, ... that all differ."""
    folder.mkdir(parents=True, exist_ok=True)
    for i in range(start, start + count):
        picture(40, 30, seed=i).save(folder / f"{i:03d}{suffix}")
    return folder
