"""Real, tiny, untrained vision models and detectors, saved to disk as Hugging Face folders."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from transformers import (
    CLIPConfig,
    CLIPModel,
    ConditionalDetrConfig,
    ConditionalDetrForObjectDetection,
    ConvNextConfig,
    ConvNextModel,
    DeformableDetrConfig,
    DeformableDetrForObjectDetection,
    DetrConfig,
    DetrForObjectDetection,
    Dinov2Config,
    Dinov2Model,
    Dinov2WithRegistersConfig,
    Dinov2WithRegistersModel,
    ResNetConfig,
    ResNetModel,
    RTDetrConfig,
    RTDetrForObjectDetection,
    RTDetrResNetConfig,
    SiglipConfig,
    SiglipModel,
    SwinConfig,
    SwinModel,
    ViTConfig,
    ViTModel,
    YolosConfig,
    YolosForObjectDetection,
)

TRANSFORMER = {
    "hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16, "patch_size": 8,
}  # fmt: skip
TEXT = {k: v for k, v in TRANSFORMER.items() if k != "patch_size"} | {"vocab_size": 20}


def resnet_config(**changes: Any) -> ResNetConfig:
    return ResNetConfig(embedding_size=4, hidden_sizes=[4, 8], depths=[1, 1], layer_type="basic", **changes)


def resnet() -> ResNetModel:
    return ResNetModel(resnet_config())


def convnext() -> ConvNextModel:
    return ConvNextModel(ConvNextConfig(hidden_sizes=[4, 8], depths=[1, 1], num_stages=2, image_size=32))


def vit() -> ViTModel:
    return ViTModel(ViTConfig(image_size=32, **TRANSFORMER))


def dinov2() -> Dinov2Model:
    config = {k: v for k, v in TRANSFORMER.items() if k != "intermediate_size"}
    return Dinov2Model(Dinov2Config(image_size=32, mlp_ratio=2, **config))


def registers() -> Dinov2WithRegistersModel:
    config = {k: v for k, v in TRANSFORMER.items() if k != "intermediate_size"}
    return Dinov2WithRegistersModel(
        Dinov2WithRegistersConfig(image_size=32, mlp_ratio=2, num_register_tokens=3, **config)
    )


def clip() -> CLIPModel:
    return CLIPModel(CLIPConfig(text_config=TEXT, vision_config=TRANSFORMER | {"image_size": 32}, projection_dim=6))


def siglip() -> SiglipModel:
    return SiglipModel(SiglipConfig(text_config=TEXT, vision_config=TRANSFORMER | {"image_size": 32}))


def swin() -> SwinModel:
    return SwinModel(
        SwinConfig(image_size=32, patch_size=4, embed_dim=6, depths=[1, 1], num_heads=[2, 2], window_size=4)
    )


BACKBONES: dict[str, Callable[[], Any]] = {
    "resnet": resnet, "convnext": convnext, "vit": vit, "dinov2": dinov2, "dinov2-registers": registers,
    "clip": clip, "siglip": siglip, "swin": swin,
}  # fmt: skip

_DETR = {
    "encoder_layers": 1, "decoder_layers": 2, "encoder_attention_heads": 2, "decoder_attention_heads": 2,
    "encoder_ffn_dim": 16, "decoder_ffn_dim": 16, "d_model": 16, "num_queries": 7, "use_timm_backbone": False,
    "use_pretrained_backbone": False, "num_labels": 5,
}  # fmt: skip


def detr() -> DetrForObjectDetection:
    return DetrForObjectDetection(
        DetrConfig(backbone_config=resnet_config(out_features=["stage2"]), backbone=None, **_DETR)
    )


def conditional_detr() -> ConditionalDetrForObjectDetection:
    return ConditionalDetrForObjectDetection(
        ConditionalDetrConfig(backbone_config=resnet_config(out_features=["stage2"]), backbone=None, **_DETR)
    )


def deformable_detr() -> DeformableDetrForObjectDetection:
    return DeformableDetrForObjectDetection(
        DeformableDetrConfig(
            backbone_config=resnet_config(out_features=["stage1", "stage2"]),
            backbone=None,
            num_feature_levels=2,
            disable_custom_kernels=True,
            **_DETR | {"d_model": 32},  # its group norms have 32 groups
        )
    )


def rt_detr() -> RTDetrForObjectDetection:
    backbone = RTDetrResNetConfig(
        embedding_size=4,
        hidden_sizes=[4, 6, 8, 10],
        depths=[1, 1, 1, 1],
        layer_type="basic",
        out_features=["stage2", "stage3", "stage4"],
    )
    return RTDetrForObjectDetection(
        RTDetrConfig(
            backbone_config=backbone,
            backbone=None,
            encoder_hidden_dim=16,
            encoder_in_channels=[6, 8, 10],
            encoder_ffn_dim=16,
            encoder_attention_heads=2,
            encode_proj_layers=[2],
            d_model=16,
            num_queries=7,
            decoder_in_channels=[16, 16, 16],
            decoder_ffn_dim=16,
            decoder_layers=2,
            decoder_attention_heads=2,
            num_labels=5,
            use_pretrained_backbone=False,
        )
    )


def yolos() -> YolosForObjectDetection:
    return YolosForObjectDetection(
        YolosConfig(image_size=[48, 64], num_detection_tokens=7, num_labels=5, **TRANSFORMER)
    )


DETECTORS: dict[str, Callable[[], Any]] = {
    "detr": detr, "conditional-detr": conditional_detr, "deformable-detr": deformable_detr, "rt-detr": rt_detr,
    "yolos": yolos,
}  # fmt: skip


def save(model: Any, folder: Path, processor: dict[str, Any] | None = None) -> str:
    """Write a model's folder, with a preprocessor_config.json where one is given."""
    model.save_pretrained(folder)
    if processor is not None:
        (folder / "preprocessor_config.json").write_text(json.dumps(processor))
    return str(folder)


def stirred(model: Any, amount: float = 0.05) -> Any:
    """Weights that are all different from their start, so that norms, biases and queries matter."""
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * amount)
    return model.eval()
