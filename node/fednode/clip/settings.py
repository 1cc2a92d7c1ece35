"""Settings of the frozen model and its device. Importing this file does not import torch."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Final, Literal

from fednode.core.settings import STRICT

MINI: Final = "fednode-mini"
"""The name of the embedded model in the settings, for every version of the model."""
FOLDER: Final = "local-dir:"
"""How the name of a model begins whose files are in a folder of this machine."""
PLAIN: Final = "a photo of a {}."
"""CLIP's hand-written prompt."""
HUB: Final = "hf-hub:"
"""How the name of a model begins that is a repository of the hub."""
ASSETS: Final = Path(__file__).parent / "assets" / MINI


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """The frozen model: fednode-mini, or any model that open_clip builds (docs/models.md)."""

    __pydantic_config__: ClassVar[dict[str, str]] = STRICT

    name: str = MINI
    """fednode-mini is part of the package, small and quick. An open_clip architecture such as
    ViT-B-16 is far better, and needs its weights, and a GPU or patience. local-dir:FOLDER is a
    folder with a model's files, as downloaded from the hub; hf-hub:OWNER/NAME is the hub's.
    `fednode check --model NAME` says what a model takes."""
    pretrained: str | None = None
    """An open_clip tag (openai, laion2b_s34b_b88k), or the path of a checkpoint file (.safetensors
    or .pt; open_clip or OpenAI state dict). null: for fednode-mini, local-dir: and hf-hub:."""
    device: str = "auto"
    """auto (CUDA if available), cpu, or cuda:N."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """Precision of matrix products. bfloat16 is faster; its features equal those of float32 to two
    or three digits."""

    def __post_init__(self) -> None:
        if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", self.device):
            raise ValueError(f"model.device is {self.device!r}; it must be auto, cpu or cuda:N.")

    def worded(self, template: str) -> str:
        """Return tuning.template as a sentence; auto stays where the model's files decide it."""
        own = self.name.startswith((FOLDER, HUB))
        return PLAIN if template == "auto" and not own else template

    def placed(self) -> ModelSettings:
        """Return the settings with an absolute path of the folder, if the name has one."""
        folder = self.name.removeprefix(FOLDER)
        if folder == self.name or not folder:
            return self
        return replace(self, name=f"{FOLDER}{Path(folder).expanduser().absolute()}")

    @property
    def title(self) -> str:
        """Return the model's name for people, without a path.

        The embedded model has its version behind its name, and a folder its last part alone.
        """
        if self.name.startswith(FOLDER):
            return FOLDER + Path(self.name.removeprefix(FOLDER)).name
        if self.name != MINI:
            return self.name
        config = json.loads((ASSETS / "config.json").read_text(encoding="utf-8"))
        return f"{MINI}, version {config['version']}"
