"""Tiny random models of every kind of image tower: a kind's structure, hardly any arithmetic."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, Final

import torch
from open_clip.model import CLIP, CustomTextCLIP

from tests.unit.clip import tiny

SIDE: Final = 32
SIZES: Final[dict[str, Any]] = {
    "img_size": SIDE,
    "patch_size": 8,
    "embed_dim": 32,
    "depth": 3,
    "num_heads": 2,
    "num_classes": 0,
}


def of_registry(name: str = "test_vit", pool: str = "", side: int = 160) -> CustomTextCLIP:
    """Return a CLIP with an image tower of timm's registry, which has tiny ones for tests."""
    vision = {"timm_model_name": name, "timm_pool": pool, "timm_proj": "linear"}
    return CustomTextCLIP(tiny.EMBED, {**vision, "image_size": side}, dict(tiny.TEXT))


def _with(trunk: Any, side: int = SIDE, width: int = 32) -> CustomTextCLIP:
    """Return a CLIP whose image tower is a given trunk."""
    model = of_registry()
    model.visual.trunk, model.visual.image_size = trunk, (side, side)
    model.visual.head = torch.nn.Sequential(torch.nn.Linear(width, tiny.EMBED, bias=False))
    return model


def _kind(module: str, name: str) -> Any:
    return getattr(importlib.import_module(f"timm.models.{module}"), name)


def _vit(**options: Any) -> CustomTextCLIP:
    return _with(_kind("vision_transformer", "VisionTransformer")(**SIZES, **options))


def _eva(**options: Any) -> CustomTextCLIP:
    rotary = {"use_rot_pos_emb": True, "ref_feat_shape": (4, 4)}
    return _with(_kind("eva", "Eva")(**SIZES, **rotary, **options))


def _vitamin() -> CustomTextCLIP:
    """A ViT behind convolutions, which make an image of 64 pixels 4 x 4 cells."""
    stem = _kind("vitamin", "VitCfg")(
        embed_dim=(8, 16, 32),
        depths=(1, 1, 1),
        stem_width=8,
        conv_cfg=_kind("vitamin", "VitConvCfg")(norm_layer="layernorm2d", norm_eps=1e-6),
        head_type="1d",
    )
    trunk = _kind("vitamin", "_create_vitamin")(
        "vitamin_small_224",
        embed_cfg=stem,
        mlp_layer=_kind("vitamin", "GeGluMlp"),
        mlp_ratio=2.0,
        class_token=False,
        global_pool="avg",
        **{key: value for key, value in SIZES.items() if key not in {"patch_size", "img_size"}},
        img_size=2 * SIDE,
    )
    return _with(trunk, 2 * SIDE)


def _fastvit() -> CustomTextCLIP:
    """MobileCLIP-S's kind: convolutions, and attention in the last stage."""
    trunk = _kind("fastvit", "FastVit")(
        layers=(1, 1, 1, 1),
        embed_dims=(8, 16, 16, 32),
        token_mixers=("repmixer", "repmixer", "repmixer", "attention"),
        pos_embs=(None, None, None, None),
        num_classes=0,
    )
    return _with(trunk, 64, int(trunk.num_features))


def _swin() -> CustomTextCLIP:
    trunk = _kind("swin_transformer", "SwinTransformer")(
        img_size=64, patch_size=4, embed_dim=8, depths=(1, 1, 1), num_heads=(1, 2, 2),
        window_size=4, num_classes=0,
    )  # fmt: skip
    return _with(trunk, 64, int(trunk.num_features))


def _resnet() -> CLIP:
    vision = {"image_size": 32, "layers": [1, 1, 1, 1], "width": 8, "patch_size": None}
    return CLIP(tiny.EMBED, vision, dict(tiny.TEXT))


Make = Callable[[], Any]
PROMPTED: Final[dict[str, Make]] = {
    "BiomedCLIP": lambda: _vit(global_pool="token"),
    "SigLIP": lambda: _vit(global_pool="map", class_token=False),
    "average": lambda: _vit(global_pool="avg", class_token=False, fc_norm=True),
    "registers": lambda: _vit(global_pool="token", reg_tokens=2, no_embed_class=True),
    "ViTamin": _vitamin,
}
"""ViTs of timm, which take visual prompts: three blocks of width 32, and 4 x 4 patches."""
OTHERS: Final[dict[str, Make]] = {
    "EVA-02": lambda: _eva(global_pool="token", qkv_fused=False, swiglu_mlp=True),
    "PE": lambda: _eva(global_pool="map", class_token=True, use_pre_transformer_norm=True),
    "ConvNeXt": lambda: of_registry("test_convnext"),
    "FastViT": _fastvit,
    "Swin": _swin,
    "ResNet": _resnet,
    "ViT with relative positions": lambda: of_registry("test_vit_relpos", "avg"),
}
"""Towers that give features alone."""


def twin(make: Make) -> Any:
    """Return a frozen model whose norms, scales and biases are not trivial."""
    torch.manual_seed(0)
    model = make().float().eval().requires_grad_(False)
    draw = torch.Generator().manual_seed(2)
    for name, parameter in model.named_parameters():
        if parameter.ndim == 1 and "logit" not in name:
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=draw))
        elif "blocks" in name or "pool" in name:
            parameter.mul_(6.0)  # timm begins with weights that hardly mix tokens
    return model
