"""A frozen open_clip model: both towers, preprocessing, device, precision and fingerprint.

The fingerprint covers weights, architecture and preprocessing. So it is equal for equal models,
whether loaded by tag or from a file, and on any device.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import open_clip
import torch
from open_clip.transform import PreprocessCfg, image_transform_v2
from PIL import Image
from torch import Tensor, nn

from fednode.clip import mini
from fednode.clip.device import oom_as_error
from fednode.clip.hooked_text import blocks_of
from fednode.clip.load import LoadedModel, byte_pairs, load_model, offline, random_model
from fednode.clip.settings import FOLDER, MINI, PLAIN, ModelSettings
from fednode.clip.text import TextTower, prompt_fault
from fednode.clip.timm_vision import tower_of
from fednode.clip.tokens import identity_of
from fednode.clip.vision import VisionTower
from fednode.errors import ModelError

NVIDIA: Final = "/dev/nvidiactl"
SIDES: Final = 8
MARGIN: Final = 16
"""An image whose long side has more than SIDES times its short side and MARGIN pixels is cut to
that before it is scaled; the filter that scales it reads fewer."""
_KEPT: Final[dict[ModelSettings, FrozenClip]] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class FrozenClip:
    """A frozen model, which prompts are tuned for.

    Attributes:
        label: name for people
        precision: of the towers' matrix products
        fingerprint: digest that peers compare
        template: the hand-written prompt of the model's authors
        seen: token ids that pretraining touched; None: all
    """

    label: str
    model: Any
    text: TextTower
    vision: VisionTower
    preprocess: Callable[[Image.Image], Tensor]
    tokenizer: Any
    device: torch.device
    precision: str
    fingerprint: str
    logit_scale: float
    logit_bias: float = 0.0
    template: str = PLAIN
    seen: frozenset[int] | None = None

    @torch.inference_mode()
    def encode_raw(self, images: Tensor) -> Tensor:
        """Return features [B, D] in float32, as the tower gives them, of images [B, 3, H, W].

        If the tower takes prompts, `images` may also be the result of `vision.tokens`.
        """
        with oom_as_error(self.device, f"while it encodes {len(images)} images"):
            images = images.to(self.device)
            if self.vision.promptable:
                return self.vision.encode(images).raw
            rough = self.precision == "bfloat16"
            with torch.autocast(self.device.type, torch.bfloat16, enabled=rough):
                features: Tensor = self.model.encode_image(images)
            return features.float()

    def add_logit_bias(self, scaled: Tensor) -> Tensor:
        """Return the model's own logits of s * cos: SigLIP adds a bias."""
        return scaled + self.logit_bias if self.logit_bias else scaled

    def out_of_vocabulary(self, names: Sequence[str]) -> list[str]:
        """Return the names that have words which pretraining never met, in the order given."""
        if self.seen is None:
            return []
        return [name for name in names if not self.seen.issuperset(self.tokenizer.encode(name))]


def load(settings: ModelSettings) -> FrozenClip:
    """Return the frozen model of the settings; raise ModelError that says what to change."""
    if settings in _KEPT:
        return _KEPT[settings]
    if settings.name != MINI:
        return freeze(load_model(settings), settings)
    if settings.pretrained is not None:
        raise ModelError(
            f"model.pretrained is {settings.pretrained!r} with model.name {MINI}, whose "
            "weights ship with it: remove it, or name the checkpoint's own architecture."
        )
    model, seen = mini.expand()
    return freeze(LoadedModel(model, settings.title, byte_pairs(), seen=seen), settings)


def without_path(settings: ModelSettings) -> ModelSettings:
    """Return the settings without the path of a file or a folder; a tag of open_clip stays."""
    if settings.name.startswith(FOLDER):
        return replace(settings, name=FOLDER, pretrained=None)
    tags = open_clip.list_pretrained_tags_by_model(settings.name)
    return settings if settings.pretrained in tags else replace(settings, pretrained=None)


def keep(settings: ModelSettings) -> None:
    """Load a model that later calls of load return, in this process and its forks.

    Do nothing if the model may belong on a GPU, because a fork cannot use its parent's.
    """
    if settings.device == "cpu" or (settings.device == "auto" and not Path(NVIDIA).exists()):
        _KEPT[settings] = load(settings)


def freeze(found: LoadedModel, settings: ModelSettings) -> FrozenClip:
    """Freeze a model and move it to its device; settings give device and precision."""
    device, label = device_of(settings.device), found.label
    model = found.model.float().eval()
    preprocessing = dict(model.visual.preprocess_cfg)
    identity = "" if found.missing else identity_of(found.tokenizer)
    fingerprint = fingerprint_of(model, preprocessing, identity)
    with oom_as_error(device, f"while {label} is put there"):
        model = model.requires_grad_(False).to(device)
    dtype = torch.bfloat16 if settings.precision == "bfloat16" else torch.float32
    return FrozenClip(
        label=label,
        model=model,
        text=TextTower(model, found.tokenizer, label, dtype, found.missing),
        vision=tower_of(model, label, dtype),
        preprocess=_bounded(PreprocessCfg(**preprocessing)),
        tokenizer=found.tokenizer,
        device=device,
        precision=settings.precision,
        fingerprint=fingerprint,
        logit_scale=float(model.logit_scale.detach().exp()),
        logit_bias=float(getattr(model, "logit_bias", None) or 0.0),
        template=found.template,
        seen=found.seen,
    )


def device_of(name: str) -> torch.device:
    """Return the device of a setting; "auto" is CUDA if available. Raise ModelError."""
    if name == "auto":
        return torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    device = torch.device(name)
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ModelError(
            f"model.device is {name!r}, and {torch.cuda.device_count()} CUDA devices are usable "
            "here: set it to auto or cpu."
        )
    return device


def _bounded(settings: PreprocessCfg) -> Callable[[Image.Image], Tensor]:
    """Return the preprocessing of images; it takes little memory for long and narrow ones, too.

    If the short side is scaled to the model's and the centre is cut out, the ends of an image that
    is longer than SIDES times its width are cut off before: no pixel that is seen depends on them.
    """
    transform: Callable[[Image.Image], Tensor] = image_transform_v2(settings, is_train=False)

    def bounded(image: Image.Image) -> Tensor:
        most = SIDES * min(image.size) + MARGIN
        across, down = (max(0, side - most) // 2 for side in image.size)
        if across or down:
            image = image.crop((across, down, image.width - across, image.height - down))
        return transform(image)

    return bounded if settings.resize_mode == "shortest" else transform


def fingerprint_of(model: nn.Module, preprocessing: dict[str, Any], identity: str = "") -> str:
    """Return SHA-256 over preprocessing, weights (names, shapes, float32 bytes) and tokenizer.

    identity: what the ids of a text depend on; "" for CLIP's byte pairs.
    """
    hasher = hashlib.sha256(json.dumps(preprocessing, sort_keys=True, default=str).encode())
    for name, value in sorted(model.state_dict().items()):
        hasher.update(f"{name}\0{tuple(value.shape)}\0".encode())
        hasher.update(value.detach().cpu().contiguous().float().numpy().tobytes())
    hasher.update(identity.encode())
    return hasher.hexdigest()


def describe(name: str, frozen: FrozenClip | None = None) -> dict[str, Any]:
    """Return what a loaded model takes, or what an architecture of open_clip takes.

    An architecture is built on torch's meta device: nothing is downloaded, no weights are drawn.

        text, tokenizer   why it takes no learned text prompts, why its tokenizer is not here; or ""
        deep, visual      whether text prompts may be deep; whether it takes visual prompts
        has_class_token   whether the class token's attention is known, for Fed-DPT
        features, reads   width of its features; tokens of a text, None if it encodes none here
    """
    if frozen is not None:
        model, text, vision = frozen.model, frozen.text, frozen.vision
    else:
        with offline(True):
            found = random_model(name, "meta")
        model, vision = found.model, tower_of(found.model, name)
        text = TextTower(model, found.tokenizer, name, missing=found.missing)
    fault = prompt_fault(model, None) if text.missing else text.fault
    try:
        patches = bool(vision.patches_shape)
    except ModelError:
        patches = False
    with torch.no_grad():
        image = torch.zeros(1, 3, *vision.image_size, device=model.logit_scale.device)
        features = int(model.encode_image(image).shape[-1])
    return {
        "name": name,
        "fault": "",
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "text": fault,
        "deep": not fault and bool(blocks_of(getattr(model, "text", model))),
        "visual": vision.promptable,
        "has_class_token": vision.has_class_token,
        "patches": patches,
        "features": features,
        "reads": None if text.fault else text.length_max,
        "tokenizer": text.missing,
        "template": (frozen or found).template,
    }
