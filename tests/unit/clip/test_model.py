"""Models by name, by file, and everything that can be wrong with either."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import open_clip
import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from safetensors.torch import save_file

from fednode.clip import model as clip
from fednode.clip.device import limit_memory, oom_as_error, to_device
from fednode.clip.settings import ASSETS, MINI, ModelSettings
from fednode.errors import ModelError
from tests.unit.clip import folders, tiny


@pytest.fixture(scope="module")
def mini() -> clip.FrozenClip:
    return clip.load(ModelSettings())


@pytest.fixture
def name(tmp_path: Path) -> Iterator[str]:
    yield tiny.register(tmp_path)
    open_clip.factory._MODEL_CONFIGS.pop(tiny.NAME, None)


@pytest.fixture
def state() -> dict[str, torch.Tensor]:
    return {key: value.clone() for key, value in tiny.clip(7).state_dict().items()}


def load(name: str, path: Path, state: dict[str, Any] | None = None) -> clip.FrozenClip:
    """Load a checkpoint; state: to write into it first."""
    if state is not None:
        (save_file if path.suffix == ".safetensors" else torch.save)(state, path)
    return clip.load(ModelSettings(name=name, pretrained=str(path)))


def test_the_shipped_model_reads_its_dimensions_from_itself(mini: clip.FrozenClip) -> None:
    assert mini.label.startswith("fednode-mini, version ")
    assert mini.text.width == mini.model.token_embedding.weight.shape[1]
    assert mini.text.length_max == mini.model.context_length == 77
    assert mini.logit_scale == pytest.approx(float(mini.model.logit_scale.exp()))
    assert not any(parameter.requires_grad for parameter in mini.model.parameters())
    assert not mini.model.training


def test_zero_shot_logits_equal_open_clips(mini: clip.FrozenClip) -> None:
    names = ["airplane", "cat", "garden spider"]
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(5, 3, *mini.model.visual.image_size, generator=generator)
    with torch.no_grad():
        wanted, _ = mini.model.get_logits(
            images, mini.tokenizer([f"a photo of a {name}." for name in names])
        )
        texts = mini.text.encode(mini.text.texts(names, "a photo of a {}."))
    ours = mini.logit_scale * F.normalize(mini.encode_raw(images), dim=-1) @ texts.T
    assert (ours - wanted).abs().max() < 1e-4


def test_preprocessing_is_the_models_own(mini: clip.FrozenClip) -> None:
    grey = Image.new("RGB", (100, 50), (128, 128, 128))
    pixels = mini.preprocess(grey)
    assert pixels.shape == (3, *mini.model.visual.image_size)
    path = Path(clip.__file__).parent / "assets/fednode-mini/config.json"
    settings = json.loads(path.read_text())["preprocess_cfg"]
    mean, deviation = settings["mean"][0], settings["std"][0]
    assert pixels[0].mean().item() == pytest.approx((128 / 255 - mean) / deviation, abs=1e-5)


def test_words_that_pretraining_never_met_are_named(mini: clip.FrozenClip) -> None:
    known = frozenset(mini.tokenizer.encode("cat airplane"))
    taught = replace(mini, seen=known)
    assert taught.out_of_vocabulary(["cat", "gerenuk", "airplane"]) == ["gerenuk"]
    assert not mini.out_of_vocabulary(["cat", "airplane"])


def test_bfloat16_is_near_float32(mini: clip.FrozenClip) -> None:
    half = clip.load(ModelSettings(precision="bfloat16"))
    side = mini.model.visual.image_size[0]
    images = torch.randn(4, 3, side, side, generator=torch.Generator().manual_seed(1))
    exact, rough = (F.normalize(one.encode_raw(images), dim=-1) for one in (mini, half))
    assert rough.dtype == torch.float32
    assert 0 < (exact - rough).abs().max() < 0.03
    assert half.fingerprint == mini.fingerprint


def test_every_form_of_a_checkpoint_gives_the_same_model(
    name: str, tmp_path: Path, state: Any, caplog: pytest.LogCaptureFixture
) -> None:
    parallel = {f"module.{key}": value for key, value in state.items()}
    trained = {"epoch": 3, "state_dict": parallel, "optimizer": {}}
    files = {"a.safetensors": state, "b.pt": state, "c.pt": trained}
    found = [load(name, tmp_path / file, held) for file, held in files.items()]
    assert len({one.fingerprint for one in found}) == 1
    assert "No pretrained weights" not in caplog.text
    loaded = found[0].model.state_dict()
    assert all(torch.equal(loaded[key], value) for key, value in state.items())
    assert found[0].label == f"{name} (a.safetensors)"
    assert found[0].seen is None
    assert found[0].out_of_vocabulary(["gerenuk"]) == []


def test_an_openai_state_dict_is_recognised_and_gets_quick_gelu(
    name: str, tmp_path: Path, state: Any
) -> None:
    half = {key: value.half() for key, value in state.items()}
    extras = {"input_resolution": 32, "context_length": 24, "vocab_size": 49408}
    openai = {**half, **{key: torch.tensor(value) for key, value in extras.items()}}
    theirs = load(name, tmp_path / "openai.pt", openai)
    plain = load(name, tmp_path / "plain.pt", half)
    kinds = [type(one.model.transformer.resblocks[0].mlp.gelu).__name__ for one in (theirs, plain)]
    assert kinds == ["QuickGELU", "GELU"]
    assert theirs.model.ln_final.weight.dtype == torch.float32


def test_a_model_with_tensors_that_no_file_has_is_built_the_long_way(
    name: str, tmp_path: Path, state: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick = load(name, tmp_path / "a.safetensors", state)
    create = open_clip.create_model

    def odd(*words: Any, **named: Any) -> Any:
        model = create(*words, **named)
        model.register_buffer("odd", torch.ones(2), persistent=False)
        return model

    monkeypatch.setattr(open_clip, "create_model", odd)
    slow = load(name, tmp_path / "a.safetensors")
    assert torch.equal(slow.model.odd, torch.ones(2))
    assert torch.equal(slow.model.attn_mask, quick.model.attn_mask)
    assert slow.fingerprint == quick.fingerprint


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"visual.conv1.weight": torch.zeros(32, 3, 8, 8)},
         r"another architecture than tiny-test-model: visual\.conv1\.weight is \[32, 3, 8, 8\] "
         r"in the file and \[32, 3, 16, 16\]"),
        ({"ln_final.bias": None}, r"lacks ln_final\.bias \(and 0 more of"),
        ({"extra": torch.zeros(1)}, "has extra, which it has not"),
        ({"ln_final.bias": torch.full((32,), torch.nan)},
         r"is damaged: ln_final\.bias holds values that are not"),
    ],
)  # fmt: skip
def test_a_checkpoint_that_does_not_fit_is_one_sentence(
    name: str, tmp_path: Path, state: Any, change: Any, reason: str
) -> None:
    changed = {key: value for key, value in {**state, **change}.items() if value is not None}
    with pytest.raises(ModelError, match=reason) as fault:
        load(name, tmp_path / "odd.safetensors", changed)
    assert "\n" not in str(fault.value)


@pytest.mark.parametrize(
    ("chosen", "sentence"),
    [
        (ModelSettings(name="ViT-B-61"), "model.name is 'ViT-B-61', which is neither fednode-mini"),
        (ModelSettings(name="ViT-B-16"), r"model\.pretrained is not set"),
        (ModelSettings(name="ViT-B-16", pretrained="opnai"), "neither a file nor a tag of ViT-B-1"),
        (ModelSettings(pretrained="x.pt"), "whose weights ship with it"),
        (ModelSettings(device="cuda:64"), "model.device is 'cuda:64', and"),
        (ModelSettings(name="local-dir:"), "'local-dir:', which names no folder: set it to local-"),
        *(
            (ModelSettings(name=name, pretrained="x.pt"), "brings its own weights: remove model.pr")
            for name in ("local-dir:here", "hf-hub:owner/name")
        ),
    ],
)
def test_settings_at_fault(chosen: ModelSettings, sentence: str) -> None:
    with pytest.raises(ModelError, match=sentence):
        clip.load(chosen)


EXPECTED: dict[str, dict[str, Any]] = {
    "ViT-S-32": {
        "text": "",
        **dict.fromkeys(("deep", "visual", "has_class_token", "patches"), True),
    },
    "RN50": {"text": "", "visual": False, "patches": False, "features": 1024},
    "ViTamin-S": {"visual": True, "has_class_token": False, "features": 384},
}


@pytest.mark.parametrize("name", EXPECTED)
def test_an_architecture_is_judged_without_weights(name: str) -> None:
    found = clip.describe(name)
    assert found["parameters"] > 1e7
    for key, value in EXPECTED[name].items():
        assert found[key] == value, key


def test_a_loaded_model_is_judged_by_itself(tmp_path: Path) -> None:
    name = f"local-dir:{folders.biomedical(tmp_path)}"
    frozen = clip.load(ModelSettings(name=name, device="cpu"))
    found = clip.describe(name, frozen)
    expected = {"text": "", "deep": True, "visual": True, "patches": True, "features": 32}
    assert expected.items() <= found.items()
    assert found["reads"] == 48


@pytest.mark.parametrize("device", ["gpu", "cuda:", "cuda:one", "cpu ", "CPU"])
def test_other_devices_are_a_sentence(device: str) -> None:
    with pytest.raises(ValueError, match=f"model.device is '{device}'; it must be auto, cpu or"):
        ModelSettings(device=device)
    assert all(ModelSettings(device=known) for known in ("auto", "cpu", "cuda", "cuda:1"))


def test_the_embedded_model_is_named_with_its_version_and_others_as_they_are() -> None:
    version = json.loads((ASSETS / "config.json").read_text())["version"]
    assert ModelSettings().title == f"{MINI}, version {version}"
    assert ModelSettings(name="ViT-B-16").title == "ViT-B-16"
    assert ModelSettings(name="local-dir:/home/jane/biomed").title == "local-dir:biomed"


def test_only_the_path_of_a_folder_becomes_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/jane")
    placed = {name: ModelSettings(name=name).placed().name for name in (
        "local-dir:biomed", "local-dir:~/biomed", "local-dir:", "hf-hub:a/b", MINI
    )}  # fmt: skip
    assert [*placed.values()] == [
        *(f"local-dir:{tmp_path}/biomed", "local-dir:/home/jane/biomed", "local-dir:"),
        *("hf-hub:a/b", MINI),
    ]


def test_a_gpu_copies_from_pinned_memory_in_its_own_time(monkeypatch: pytest.MonkeyPatch) -> None:
    here = torch.tensor([1, 2])
    assert to_device(here, torch.device("cpu")) is here
    pinned, device = torch.tensor([1, 2]), torch.device("cuda:0")
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda _: pinned)
    monkeypatch.setattr(torch.Tensor, "to", lambda *words, **how: (*words, how))
    found = to_device(torch.tensor([1, 2]), device)
    assert found == (pinned, device, {"non_blocking": True})


def test_a_memory_that_ends_is_a_sentence() -> None:
    wanted = r"the memory of cuda:0 ends in a step: choose a smaller model \(model.name\)"
    with pytest.raises(ModelError, match=wanted), oom_as_error(torch.device("cuda:0"), "in a step"):
        raise torch.OutOfMemoryError("CUDA out of memory")


@pytest.mark.parametrize(
    ("device", "share", "wanted"),
    [("cuda:0", 0.25, [0.25]), ("cuda:0", None, []), ("cpu", 0.25, [])],
)
def test_a_share_of_the_memory_is_a_limit_on_a_gpu_alone(
    device: str, share: float | None, wanted: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float] = []
    monkeypatch.setattr(
        torch.cuda, "set_per_process_memory_fraction", lambda part, _: asked.append(part)
    )
    limit_memory(torch.device(device), share)
    assert asked == wanted
