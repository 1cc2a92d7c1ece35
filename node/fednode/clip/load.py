"""Find a model, read its files safely, and say in one sentence what is wrong with them.

    ViT-B-16              an architecture of open_clip; model.pretrained is a tag or a file
    local-dir:FOLDER      files as the hub has them: open_clip_config.json, weights, a tokenizer
    hf-hub:OWNER/NAME     such files, fetched from the hub once and then read from its cache

No code of a folder or a file runs: weights are tensors alone, and a tokenizer is one that
transformers has. A safetensors file in float32 is mapped, not read: processes that map it have it
in memory once.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import huggingface_hub
import open_clip
import torch
from huggingface_hub import constants
from open_clip.convert import convert_state_dict
from open_clip.model import convert_to_custom_text_state_dict
from open_clip.transform import PreprocessCfg, image_transform_v2
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from fednode.clip.config import CONFIG, SIZES, read_config, read_sizes
from fednode.clip.settings import FOLDER, HUB, MINI, PLAIN, ModelSettings
from fednode.clip.tokens import READ
from fednode.core import foreign
from fednode.errors import ModelError

State = dict[str, torch.Tensor]
WEIGHTS: Final = (
    "open_clip_model.safetensors",
    "open_clip_pytorch_model.safetensors",
    "open_clip_pytorch_model.bin",
    "open_clip_pytorch_model.pt",
    "model.safetensors",
    "pytorch_model.bin",
)
"""Names of a folder's weights, the first of them that exists."""
TOKENIZER: Final = ("tokenizer.json", "vocab.txt", "vocab.json", "*.model", "tokenizer_config.json")
HEADER_MAX: Final = 8 << 20
"""Bytes of the names and shapes of a safetensors file; a model of 10,000 tensors needs 1 MiB."""
INFLATED_MAX: Final = 1 << 20
"""Bytes by which an archive of torch may grow when it is read; torch compresses nothing."""
OPENAI_EXTRAS: Final = ("input_resolution", "context_length", "vocab_size")
# Left over from older versions of open_clip and transformers; today's models have no such entries.
IGNORED: Final = ("text.transformer.embeddings.position_ids", "attn_mask")
ANSWER_S: Final = 5.0  # for the hub to answer the first question
SAID_MAX: Final = 160
"""Characters of another library's explanation that a sentence takes over."""
UNTRUE: Final = ("No pretrained weights loaded", "Failed to download weights", "Multiple checkp")
"""How those of open_clip's records begin that are false, or that fednode says in its own words."""
BIOMEDICAL: Final = tuple(
    f"microsoft/BiomedNLP-{name}-base-uncased-abstract{end}"
    for name in ("BiomedBERT", "PubMedBERT")
    for end in ("", "-fulltext")
)
"""Names that configurations have for BiomedCLIP's text tower."""
TEXT_SIZES: Final[dict[str, Any]] = {name: {"model_type": "bert"} for name in BIOMEDICAL}
"""Sizes of text towers whose folders have no file with them; BiomedCLIP's are BERT's defaults."""
TEMPLATES: Final = dict.fromkeys(BIOMEDICAL, "this is a photo of {}")
"""Hand-written prompts by text tower. BiomedCLIP (arXiv:2303.00915): the example of its card."""


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model of open_clip; label, template and seen as in FrozenClip.

    tokenizer: open_clip's; None if it cannot be had. missing: then why, as half a sentence.
    """

    model: Any
    label: str
    tokenizer: Any
    missing: str = ""
    template: str = PLAIN
    seen: frozenset[int] | None = None


def load_model(settings: ModelSettings) -> LoadedModel:
    """Return the model of the settings, whose name is not that of the embedded model.

    Raise ModelError that says what to change.
    """
    name, source = settings.name, settings.pretrained
    if not name.startswith((FOLDER, HUB)):
        text = config_of(name)["text_cfg"]
        model, label = _open_clip(name, source, text), f"{name} ({Path(source or '').name})"
        return LoadedModel(model, label, *tokenizer_of(text), template_of(text))
    if source is not None:
        raise ModelError(
            f"model.pretrained is {source!r}, and {name} brings its own weights: remove "
            "model.pretrained."
        )
    if name == FOLDER:
        raise ModelError(
            f"model.name is {name!r}, which names no folder: set it to {FOLDER}FOLDER, the folder "
            "on this machine that holds the model's files."
        )
    folder = Path(name.removeprefix(FOLDER)).expanduser()
    if name.startswith(HUB):
        folder = _fetched_folder(name.removeprefix(HUB))
    text = read_config(folder, name)
    model = _of_folder(folder, text, name)
    return LoadedModel(model, settings.title, *tokenizer_of(text, folder), template_of(text))


def random_model(name: str, device: str = "cpu") -> LoadedModel:
    """Return an architecture of open_clip with random weights; on "meta" it has shapes alone."""
    text = config_of(name)["text_cfg"]
    with without_records(), text_sizes(text), torch.device(device):
        model = open_clip.create_model(name, device=device, pretrained_text=False)
    label = f"{name} (random weights)"
    return LoadedModel(model, label, *tokenizer_of(text), template_of(text))


def config_of(name: str) -> dict[str, Any]:
    """Return the configuration of an architecture of open_clip; raise ModelError without one."""
    config: dict[str, Any] | None = open_clip.get_model_config(name)
    if config is None:
        raise ModelError(
            f"model.name is {name!r}, which is neither {MINI} nor one of the "
            f"{len(open_clip.list_models())} architectures of open_clip, such as ViT-B-16, nor "
            f"{FOLDER}FOLDER nor {HUB}OWNER/NAME."
        )
    return config


def template_of(text: Mapping[str, Any]) -> str:
    """Return the hand-written prompt of a model's authors, by the name of its text tower.

    text: "text_cfg" of its configuration. CLIP's paper calls "A photo of a {label}." a good one.
    """
    return TEMPLATES.get(str(text.get("hf_model_name", "")), PLAIN)


def tokenizer_of(text: Mapping[str, Any], folder: Path | None = None) -> tuple[Any, str]:
    """Return open_clip's tokenizer for a text tower, and why there is none; one of both is empty.

    folder: of the model's files; a tokenizer that is not there is not fetched from the network.
    """
    options = dict(text.get("tokenizer_kwargs", {}))
    read = int(text.get("context_length", READ))
    source = text.get("hf_tokenizer_name")
    if not source:
        if read == READ and not options:
            return byte_pairs(), ""
        return open_clip.tokenizer.SimpleTokenizer(context_length=read, **options), ""
    if folder is not None and not any(any(folder.glob(pattern)) for pattern in TOKENIZER):
        return None, f"its folder {folder} has no tokenizer ({', '.join(TOKENIZER)})"
    try:
        _need_transformers(f"its tokenizer {source}")
        with _from_hub(f"its tokenizer {folder or source}", local=folder is not None):
            return open_clip.tokenizer.HFTokenizer(
                str(folder or source),
                context_length=read,
                tokenizer_mode=text.get("tokenizer_mode"),
                trust_remote_code=False,
                **options,
            ), ""
    except ModelError as fault:
        return None, str(fault).rstrip(".")


@cache
def byte_pairs() -> Any:
    """Return CLIP's tokenizer; reading its table takes tenths of a second."""
    return open_clip.tokenizer.SimpleTokenizer()


def _open_clip(name: str, source: str | None, text: Mapping[str, Any]) -> nn.Module:
    if source is None:
        raise ModelError(
            f"model.pretrained is not set: name the weights of {name} by a tag of open_clip "
            "(openai, ...) or a checkpoint file."
        )
    tags, path = open_clip.list_pretrained_tags_by_model(name), Path(source)
    if source in tags:
        what, remedy = f"the checkpoint {source!r} of {name}", "give a file as model.pretrained"
        with _from_hub(what, remedy), text_sizes(text):
            fetched: nn.Module = open_clip.create_model(name, pretrained=source, weights_only=True)
            return fetched
    if not path.is_file() and not path.suffix:
        raise ModelError(
            f"model.pretrained is {source!r}, which is neither a file nor a tag of {name}; its "
            f"tags are {', '.join(tags) or 'none'}."
        )
    return _with_weights(name, path, name, text)


def _of_folder(folder: Path, text: Mapping[str, Any], name: str) -> nn.Module:
    """Return the model of a folder; raise ModelError if a file is missing or does not fit."""
    path = next((folder / file for file in WEIGHTS if (folder / file).is_file()), None)
    if path is None:
        raise ModelError(
            f"the folder {folder} has no weights of a model: put one of {', '.join(WEIGHTS)} into "
            "it."
        )
    try:
        model: Any = _with_weights(f"{FOLDER}{folder}", path, name, text, folder)
        image_transform_v2(PreprocessCfg(**model.visual.preprocess_cfg), is_train=False)
        return model  # type: ignore[no-any-return]
    except ModelError:
        raise
    except Exception as fault:
        # Configurations fail in open_clip, timm and transformers in many ways.
        raise ModelError(
            f"{folder / CONFIG} describes no model that open_clip builds ({_line(fault)}): fetch "
            "the file again."
        ) from fault


def _with_weights(
    source: str, path: Path, name: str, text: Mapping[str, Any], folder: Path | None = None
) -> nn.Module:
    """Return a model that open_clip calls `source`, and the settings `name`, with a file's weights.

    folder: of its files; no network is used.
    """
    state, openai = read_checkpoint(path)
    options: dict[str, Any] = {"load_weights": False} if folder else {"force_quick_gelu": openai}
    make: Any = partial(open_clip.create_model, source, pretrained_text=False, **options)
    with without_records(), offline(folder is not None), text_sizes(text, folder):
        return build_model(make, lambda model: _put_weights(model, state, path, name))


def _fetched_folder(name: str) -> Path:
    """Return the folder with the files of the hub's repository OWNER/NAME.

    Only the configuration, the first of WEIGHTS, sizes and the tokenizer are fetched.
    """
    remedy = f"download the files and set model.name to {FOLDER}FOLDER"
    with _from_hub(f"the model {HUB}{name}", remedy):
        if constants.HF_HUB_OFFLINE:
            return Path(huggingface_hub.snapshot_download(name, local_files_only=True))
        files = huggingface_hub.HfApi().list_repo_files(name)
        first = next((file for file in WEIGHTS if file in files), "")
        others = [file for file in files if any(fnmatch(file, pattern) for pattern in TOKENIZER)]
        wanted = [CONFIG, SIZES, "special_tokens_map.json", *others, first]
        return Path(huggingface_hub.snapshot_download(name, allow_patterns=wanted))


@contextlib.contextmanager
def _from_hub(what: str, remedy: str = "", local: bool = False) -> Iterator[None]:
    """Say in a sentence that `what` cannot be had if the block fails.

    The hub is asked once whether it answers, because without a network its library tries for 100 s
    to fetch each file, even those in its cache. local: files of this machine; the hub is not asked.
    """
    silent = "" if local else unreachable_reason()
    try:
        with offline(local or bool(silent)), without_records():
            yield
    except ModelError:
        raise
    except Exception as fault:
        # Downloads, the hub's cache and tokenizers fail in many ways.
        why, first = f"cannot be had ({_line(fault)})", "check the name and the network"
        if silent:
            why = f"is not on this machine, and {constants.ENDPOINT} does not answer ({silent})"
            first = "connect it once"
        raise ModelError(f"{what} {why}{f': {first}, or {remedy}' if remedy else ''}.") from fault


def unreachable_reason() -> str:
    """Return why the hub does not answer; "" if it does, or if the user has turned it off."""
    if constants.HF_HUB_OFFLINE:
        return ""
    try:
        huggingface_hub.get_session().head(constants.ENDPOINT, timeout=ANSWER_S)
    except Exception as fault:  # of whatever library carries the request
        return foreign.line(" ".join(str(fault).split()) or type(fault).__name__, SAID_MAX)
    return ""


@contextlib.contextmanager
def offline(now: bool) -> Iterator[None]:
    """Use only what the hub's cache holds, if `now`, until the block ends."""
    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = before or now
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


@contextlib.contextmanager
def without_records() -> Iterator[None]:
    """Drop the records of open_clip that begin like one of UNTRUE.

    Its first warning would give the root logger a handler of its own, unless there is one.
    """
    root, nothing = logging.getLogger(), logging.NullHandler()

    def is_true(record: logging.LogRecord) -> bool:
        return not str(record.msg).startswith(UNTRUE)

    root.addHandler(nothing)
    root.addFilter(is_true)
    try:
        yield
    finally:
        root.removeFilter(is_true)
        root.removeHandler(nothing)


@contextlib.contextmanager
def text_sizes(text: Mapping[str, Any], folder: Path | None = None) -> Iterator[None]:
    """Let open_clip build a text tower whose configuration names a repository, and no sizes.

    The sizes come from the model's own folder, from TEXT_SIZES, or from the hub. Raise ModelError
    if they cannot be had or transformers is not installed.
    """
    name = text.get("hf_model_name")
    if not name:
        yield
        return
    _need_transformers(f"the text tower {name}")
    asked: Any = importlib.import_module("open_clip.hf_model")
    before, theirs = asked.AutoConfig, importlib.import_module("transformers").AutoConfig
    sizes = (read_sizes(folder) if folder else None) or TEXT_SIZES.get(name)

    def from_pretrained(name: str, **_: Any) -> Any:
        if sizes is not None:
            return theirs.for_model(**sizes)
        why = f"{folder} has no {SIZES} with them"
        try:
            if folder is None:
                return theirs.from_pretrained(name)
        except OSError:
            why = "the hub does not give them, and they are not in its cache"
        raise ModelError(
            f"the sizes of the text tower {name} are unknown, because {why}: put the {SIZES} of "
            f"{name} into a folder with the model's files, and name it {FOLDER}FOLDER."
        )

    asked.AutoConfig = SimpleNamespace(from_pretrained=from_pretrained)
    try:
        yield
    finally:
        asked.AutoConfig = before


def _need_transformers(what: str) -> None:
    try:
        importlib.import_module("transformers")
    except ImportError as fault:
        raise ModelError(
            f"{what} needs the library transformers, which is not installed: run `pip install "
            "'fednode[hf]'`."
        ) from fault


def read_checkpoint(path: Path) -> tuple[State, bool]:
    """Return a file's tensors by name, and whether they are OpenAI's (which use QuickGELU).

    A training checkpoint's "state_dict" and the prefix of data-parallel training are unwrapped.
    """
    if not path.is_file():
        raise ModelError(f"There is no checkpoint file {path}: correct model.pretrained.")
    try:
        content = _load_safetensors(path) if path.suffix == ".safetensors" else _load_torch(path)
    except OSError as fault:
        raise ModelError(f"{path} cannot be read: {fault.strerror or fault}.") from fault
    if not isinstance(content, Mapping):
        raise ModelError(f"{path} holds a {type(content).__name__}, not a state dict of tensors.")
    inside = content.get("state_dict", content)
    named = dict(inside) if isinstance(inside, Mapping) else {}
    openai = all(name in named for name in OPENAI_EXTRAS)
    state = {
        str(name).removeprefix("module."): value
        for name, value in named.items()
        if _is_weight(value) and name not in OPENAI_EXTRAS
    }
    if not state:
        raise ModelError(f"{path} holds no tensors: it is not a checkpoint of a model.")
    return state, openai


def _is_weight(value: object) -> bool:
    """Tell whether a value is a tensor that can be a model's weight: dense, real, not quantized."""
    if not isinstance(value, torch.Tensor):
        return False
    return value.layout == torch.strided and not (value.is_complex() or value.is_quantized)


def _load_safetensors(path: Path) -> State:
    try:
        with path.open("rb") as file:
            header = int.from_bytes(file.read(8), "little")
        if HEADER_MAX < header < path.stat().st_size:
            raise ModelError(
                f"{path} names its tensors in {header >> 20} MiB, and no model needs more than "
                f"{HEADER_MAX >> 20} MiB: fetch the file again."
            )
        return load_file(path)
    except SafetensorError as fault:
        raise ModelError(
            f"{path} is no safetensors file, or a damaged one: fetch the file again."
        ) from fault


def _load_torch(path: Path) -> Any:
    """Return what torch.load reads from a file with weights_only, so no file can run code."""
    inflated = 0
    # If the archive is damaged, torch says what is wrong.
    with contextlib.suppress(OSError, zipfile.BadZipFile), zipfile.ZipFile(path) as archive:
        inflated = sum(entry.file_size for entry in archive.infolist())
    if inflated > path.stat().st_size + INFLATED_MAX:
        raise ModelError(
            f"{path} grows to {inflated >> 20} MiB when it is read, and torch compresses nothing: "
            "fetch the file again."
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # they are about torch's own calls
            return torch.load(path, map_location="cpu", weights_only=True)
    except OSError:
        raise
    except Exception as fault:
        # torch.load raises errors of many types on damaged or refused files.
        raise ModelError(
            f"{path} cannot be read as a file of weights only: it is damaged, of another kind, or "
            "holds code (TorchScript) or Python objects, which can run code. Save a state_dict() "
            "with torch.save or as .safetensors and give that file."
        ) from fault


def build_model(make: Callable[..., nn.Module], fill: Callable[[nn.Module], Any]) -> nn.Module:
    """Return a model that `make` builds (on `device`) and `fill` gives its weights.

    The model is built without memory for weights and then filled. If tensors other than causal
    masks remain empty, because no state dict holds them, the model is built again in memory.
    """
    with torch.device("meta"):
        model = make(device="meta")
    fill(model)
    for module in model.modules():
        mask: Any = getattr(module, "attn_mask", None)
        if mask is not None and mask.is_meta:
            module.attn_mask = torch.full(mask.shape, -torch.inf).triu_(1)
    if any(array.is_meta for array in (*model.parameters(), *model.buffers())):
        model = make(device="cpu")
        fill(model)
    return model


def _put_weights(model: nn.Module, state: State, path: Path, name: str) -> None:
    """Load a state dict into an open_clip model in float32; raise ModelError if it does not fit."""
    state = convert_state_dict(model, state)
    if "positional_embedding" in state and not hasattr(model, "positional_embedding"):
        state = convert_to_custom_text_state_dict(state)
    expected = model.state_dict()
    for scalar in ("logit_scale", "logit_bias"):
        if scalar in state and scalar in expected:
            state[scalar] = state[scalar].reshape(expected[scalar].shape)
    state = {key: value.float() for key, value in state.items() if key not in IGNORED}
    if wrong := _difference(expected, state):
        raise ModelError(
            f"{path} is a checkpoint of another architecture than {name}: {wrong}; set model.name "
            "to the architecture that the file was made with."
        )
    broken = [key for key, value in state.items() if not torch.isfinite(value).all()]
    if broken:
        raise ModelError(
            f"{path} is damaged: {broken[0]} holds values that are not finite (so do "
            f"{len(broken) - 1} other tensors); fetch the file again."
        )
    model.load_state_dict(state, assign=True)


def _difference(expected: Mapping[str, torch.Tensor], state: State) -> str:
    for key, value in expected.items():
        if key in state and state[key].shape != value.shape:
            return f"{key} is {list(state[key].shape)} in the file and {list(value.shape)} in it"
    missing = [key for key in expected if key not in state]
    if missing:
        return f"the file lacks {missing[0]} (and {len(missing) - 1} more of {len(expected)})"
    unknown = [key for key in state if key not in expected]
    return f"the file has {unknown[0]}, which it has not" if unknown else ""


def _line(fault: Exception) -> str:
    return f"{type(fault).__name__}: {foreign.line(' '.join(str(fault).split()), SAID_MAX)}"
