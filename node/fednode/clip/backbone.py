"""A frozen open_clip model: both towers, preprocessing, device, precision and fingerprint.

All dimensions are read from the model. The fingerprint covers weights, architecture and
preprocessing. So it is equal for equal models, whether loaded by tag or from a file, and on any
device.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import open_clip
import torch
import torch.nn.functional as F
from huggingface_hub import constants
from open_clip.transform import PreprocessCfg, image_transform_v2, merge_preprocess_dict
from PIL import Image
from torch import Tensor, nn

from fednode.clip import checkpoint, hub, mini
from fednode.clip.settings import MINI, ModelSettings
from fednode.clip.shared import SharedWeights
from fednode.clip.text import TextTower
from fednode.clip.vision import VisionTower
from fednode.core import foreign
from fednode.errors import ModelError

NVIDIA: Final = "/dev/nvidiactl"
_KEPT: Final[dict[ModelSettings, Backbone]] = {}
SAID_MAX: Final = 160
"""Characters of another library's explanation that a sentence takes over."""
SAMPLE_NAMES: Final = tuple(open_clip.IMAGENET_CLASSNAMES)
"""A thousand class names of usual length, for measurements."""
ENSEMBLE: Final = tuple(template("{}") for template in open_clip.OPENAI_IMAGENET_TEMPLATES)
"""CLIP's hand-written templates for ImageNet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backbone:
    """A frozen model, which prompts are tuned for.

    Attributes:
        label: name for people
        precision: of the towers' matrix products
        fingerprint: digest that peers compare
        seen: token ids that pretraining touched; None: all
        notes: faults of sharing weights, as sentences
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
    seen: frozenset[int] | None = None
    notes: tuple[str, ...] = ()

    @torch.inference_mode()
    def encode_images(self, images: Tensor) -> Tensor:
        """Return unit features [B, D] in float32 of preprocessed images [B, 3, H, W].

        If the tower takes prompts, `images` may also be the result of `vision.tokens`.
        """
        return F.normalize(self.encode_raw(images), dim=-1)

    @torch.inference_mode()
    def encode_raw(self, images: Tensor) -> Tensor:
        """Return features [B, D] in float32 as the tower gives them; images as in encode_images."""
        images = images.to(self.device)
        if self.vision.promptable:
            return self.vision.encode(images).raw
        rough = self.precision == "bfloat16"
        with torch.autocast(self.device.type, torch.bfloat16, enabled=rough):
            features: Tensor = self.model.encode_image(images)
        return features.float()

    def unseen(self, names: Sequence[str]) -> list[str]:
        """Return the names that have words which pretraining never met, in the order given."""
        if self.seen is None:
            return []
        return [name for name in names if not self.seen.issuperset(self.tokenizer.encode(name))]


def load(settings: ModelSettings, shared: SharedWeights | None = None) -> Backbone:
    """Return the frozen model of the settings; raise ModelError that says what to change.

    shared: the weights that processes share; None keeps them in this process.
    """
    if settings in _KEPT:
        return _KEPT[settings]
    seen = None
    if settings.name == MINI:
        if settings.pretrained is not None:
            raise ModelError(
                f"model.pretrained is {settings.pretrained!r} with model.name {MINI}, whose "
                "weights ship with it: remove it, or name the checkpoint's own architecture."
            )
        model: Any
        model, config, seen = mini.expand()
        preprocessing = merge_preprocess_dict(PreprocessCfg(), config["preprocess_cfg"])
        tokenizer: Any = _byte_pairs()
        label = settings.title
    else:
        model, mapped = _open_clip(settings)
        shared = None if mapped else shared
        preprocessing = model.visual.preprocess_cfg
        tokenizer = _tokenizer(settings.name)
        label = f"{settings.name} ({_short(settings.pretrained)})"
    return wrap(model, preprocessing, tokenizer, label, settings, seen, shared)


def keep(settings: ModelSettings, shared: SharedWeights | None = None) -> None:
    """Load a model that later calls of load return, in this process and its forks.

    Do nothing if the model may belong on a GPU, because a fork cannot use its parent's.
    """
    if settings.device == "cpu" or (settings.device == "auto" and not Path(NVIDIA).exists()):
        _KEPT[settings] = load(settings, shared)


def untrained(settings: ModelSettings) -> Backbone:
    """Return an architecture with random weights, for measuring speed."""
    if settings.name not in open_clip.list_models():
        raise ModelError(f"There is no architecture {settings.name!r} in open_clip.")
    with hub.without_records():
        model: Any = open_clip.create_model(settings.name, pretrained=None)
    preprocessing = dict(model.visual.preprocess_cfg)
    label = f"{settings.name} (random weights)"
    return wrap(model, preprocessing, _tokenizer(settings.name), label, settings)


def wrap(
    model: Any,
    preprocessing: dict[str, Any],
    tokenizer: Any,
    label: str,
    settings: ModelSettings,
    seen: frozenset[int] | None = None,
    shared: SharedWeights | None = None,
) -> Backbone:
    """Freeze a model and move it to its device; settings give device and precision."""
    device = device_of(settings.device)
    model = model.float().eval()
    fingerprint = fingerprint_of(model, preprocessing)
    if shared and device.type == "cpu":
        shared.put_under(model, fingerprint, lambda: fingerprint_of(model, preprocessing))
    model = model.requires_grad_(False).to(device)
    dtype = torch.bfloat16 if settings.precision == "bfloat16" else torch.float32
    return Backbone(
        label=label,
        model=model,
        text=TextTower(model, tokenizer, label, dtype),
        vision=VisionTower(model, label, dtype),
        preprocess=image_transform_v2(PreprocessCfg(**preprocessing), is_train=False),
        tokenizer=tokenizer,
        device=device,
        precision=settings.precision,
        fingerprint=fingerprint,
        logit_scale=float(model.logit_scale.detach().exp()),
        seen=seen,
        notes=tuple(shared.notes) if shared else (),
    )


def check(settings: ModelSettings) -> list[str]:
    """Return the faults of the model settings, as sentences; loads the model to find them."""
    try:
        load(settings)
    except ModelError as fault:
        return [str(fault)]
    return []


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


def fingerprint_of(model: nn.Module, preprocessing: dict[str, Any]) -> str:
    """Return SHA-256 over preprocessing and weights (names, shapes and float32 bytes)."""
    hasher = hashlib.sha256(json.dumps(preprocessing, sort_keys=True, default=str).encode())
    for name, value in sorted(model.state_dict().items()):
        hasher.update(f"{name}\0{tuple(value.shape)}\0".encode())
        hasher.update(value.detach().cpu().contiguous().float().numpy().tobytes())
    return hasher.hexdigest()


def _open_clip(settings: ModelSettings) -> tuple[nn.Module, bool]:
    """Return a model with its weights, and whether they are mapped from the user's own file."""
    name, source = settings.name, settings.pretrained
    if open_clip.get_model_config(name) is None:
        raise ModelError(
            f"model.name is {name!r}, which is neither {MINI} nor one of the "
            f"{len(open_clip.list_models())} architectures of open_clip, such as ViT-B-16."
        )
    if source is None:
        raise ModelError(
            f"model.pretrained is not set: name the weights of {name} by a tag of open_clip "
            "(openai, ...) or a checkpoint file."
        )
    tags = open_clip.list_pretrained_tags_by_model(name)
    if source not in tags:
        if not Path(source).is_file() and not Path(source).suffix:
            raise ModelError(
                f"model.pretrained is {source!r}, which is neither a file nor a tag of {name}; its "
                f"tags are {', '.join(tags) or 'none'}."
            )
        path = Path(source)
        state, openai = checkpoint.read(path)
        with hub.without_records():
            made = checkpoint.build(
                lambda device: open_clip.create_model(name, device=device, force_quick_gelu=openai),
                lambda model: checkpoint.put(model, state, path, name),
            )
        return made, checkpoint.is_mapped(made, state, path)
    return _fetched(name, source), False


def _fetched(name: str, tag: str) -> nn.Module:
    """Return a model with the weights of a tag, from the hub or from its cache on this machine."""
    silent = hub.silence()
    try:
        with hub.offline(bool(silent)), hub.without_records():
            model: nn.Module = open_clip.create_model(name, pretrained=tag, weights_only=True)
    except Exception as fault:
        # The download and its cache fail in many ways that fednode does not control.
        what = f"the weights {tag!r} of {name}"
        remedy = "connect it to the network once, or give a checkpoint file as model.pretrained."
        if silent:
            raise ModelError(
                f"{what} are not on this machine, and {constants.ENDPOINT} does not answer "
                f"({foreign.line(silent, SAID_MAX)}): {remedy}"
            ) from fault
        reason = foreign.line(" ".join(str(fault).split()), SAID_MAX)
        raise ModelError(
            f"{what} cannot be had ({type(fault).__name__}: {reason}): check the network, or give "
            "a checkpoint file as model.pretrained."
        ) from fault
    return model


@cache
def _byte_pairs() -> Any:
    """Return CLIP's tokenizer; reading its table takes tenths of a second."""
    return open_clip.tokenizer.SimpleTokenizer()


def _tokenizer(name: str) -> Any:
    try:
        return open_clip.get_tokenizer(name)
    except Exception as fault:
        # Tokenizers of other families are downloaded; a tower that needs them cannot be used
        # anyway.
        reason = " ".join(str(fault).split())[:160]
        raise ModelError(f"the tokenizer of {name} cannot be had: {reason}.") from fault


def _short(source: str | None) -> str:
    return Path(source or "").name
