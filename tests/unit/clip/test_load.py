"""Models from folders and from the hub: what loads, what is said, and that no network is asked."""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from unittest import mock

import huggingface_hub
import open_clip
import pytest
import torch
import torch.nn.functional as F
from huggingface_hub import constants

from fednode.clip import model as clip
from fednode.clip.config import CONFIG, SIZES
from fednode.clip.load import (
    ANSWER_S,
    BIOMEDICAL,
    load_model,
    offline,
    template_of,
    text_sizes,
    tokenizer_of,
    unreachable_reason,
    without_records,
)
from fednode.clip.settings import PLAIN, ModelSettings
from fednode.errors import ModelError
from fednode.learn.settings import TuningSettings
from tests.unit.clip import folders, twins

NAMES = ("cat", "pleural effusion")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return folders.biomedical(tmp_path_factory.mktemp("biomedical"))


@pytest.fixture
def mine(folder: Path, tmp_path: Path) -> Path:
    """A copy that a test may change."""
    shutil.copytree(folder, tmp_path / "copy")
    return tmp_path / "copy"


class Session:
    """A session of the hub's library that raises a fault, or answers; asked: with which limits."""

    def __init__(self) -> None:
        self.fault: Exception | None = OSError("Name or service\n  not known")
        self.asked: list[tuple[str, float]] = []

    def head(self, url: str, timeout: float) -> None:
        self.asked.append((url, timeout))
        if self.fault is not None:
            raise self.fault


ONCE: Final = [(constants.ENDPOINT, ANSWER_S)]


@pytest.fixture(autouse=True)
def session(monkeypatch: pytest.MonkeyPatch) -> Session:
    """No network: whatever asks the hub gets an error."""
    made = Session()
    monkeypatch.setattr(huggingface_hub, "get_session", lambda: made)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    return made


def load(folder: Path | str) -> clip.FrozenClip:
    return clip.load(ModelSettings(name=f"local-dir:{folder}", device="cpu"))


def test_a_folder_of_biomedclips_form_loads_offline(
    folder: Path, session: Session, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.clear()
    frozen = load(folder)
    assert (session.asked, caplog.text) == ([], "")
    assert frozen.label == f"local-dir:{folder.name}"  # a path is nobody else's business
    assert (frozen.text.fault, frozen.text.length_max, frozen.text.layers) == ("", 48, 3)
    context = frozen.text.embed_words("chest x-ray of")
    ours = frozen.text.encode(frozen.text.tokens(NAMES, len(context)), context)
    tokenizer = frozen.tokenizer([f"chest x-ray of {name}." for name in NAMES])
    wanted = frozen.model.encode_text(tokenizer, normalize=True)
    assert (ours - wanted).abs().max() < 1e-5
    images = torch.randn(2, 3, 160, 160, generator=torch.Generator().manual_seed(0))
    found = F.normalize(frozen.encode_raw(images), dim=-1)
    assert (found - frozen.model.encode_image(images, normalize=True)).abs().max() < 1e-5


def test_one_fingerprint_for_every_form_of_the_weights(folder: Path, tmp_path: Path) -> None:
    other = folders.biomedical(tmp_path / "other", "safetensors")
    assert load(folder).fingerprint == load(other).fingerprint
    assert load(folders.biomedical(tmp_path / "third", seed=1)).fingerprint != (
        load(folder).fingerprint
    )


@pytest.fixture
def known(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[str]:
    """Let open_clip know the folder's architecture by name, with its tokenizer on the hub."""
    name = "tiny-biomedical"
    (tmp_path / f"{name}.json").write_text(json.dumps(folders.CONFIG["model_cfg"]))
    open_clip.add_model_config(tmp_path / f"{name}.json")
    yield name
    open_clip.factory._MODEL_CONFIGS.pop(name, None)


def test_a_checkpoint_file_has_the_fingerprint_of_the_folder(
    folder: Path, known: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = open_clip.tokenizer.HFTokenizer

    def cached(source: str, **options: Any) -> Any:
        return made(str(folder) if source == folders.BERT else source, **options)

    monkeypatch.setattr(open_clip.tokenizer, "HFTokenizer", cached)
    vocabulary = json.loads((folder / "config.json").read_text())
    path = folder / "open_clip_pytorch_model.bin"
    with twins.given(folders.BERT, vocabulary):
        found = clip.load(ModelSettings(name=known, pretrained=str(path), device="cpu"))
    assert found.fingerprint == load(folder).fingerprint


def test_the_tokenizer_counts_in_the_fingerprint(folder: Path, mine: Path) -> None:
    path = mine / "tokenizer.json"
    path.write_text(path.read_text().replace('"pleural"', '"plural"'))
    assert load(mine).fingerprint != load(folder).fingerprint


def renamed(part: str, **changed: str) -> Callable[[Path], object]:
    """Return what changes a section of a folder's configuration."""

    def change(folder: Path) -> None:
        (folder / SIZES).unlink()
        config = json.loads((folder / CONFIG).read_text())
        config["model_cfg"][part].update(changed)
        (folder / CONFIG).write_text(json.dumps(config))

    return change


def with_code(folder: Path) -> None:
    """Let a tokenizer be made by code of the folder."""
    described = {"tokenizer_class": "Strange", "auto_map": {"AutoTokenizer": ["code.T", None]}}
    (folder / "tokenizer_config.json").write_text(json.dumps(described))
    (folder / "tokenizer.json").unlink()
    (folder / "code.py").write_text("print('code ran')\nclass T: pass\n")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda at: (at / CONFIG).unlink(), "open_clip_config.json cannot be read (No such file"),
        (lambda at: (at / "open_clip_pytorch_model.bin").unlink(),
         "has no weights of a model: put one of open_clip_model"),
        (renamed("text_cfg", hf_model_name="somebody/bert"),
         "sizes of the text tower somebody/bert are unknown, because"),
        (renamed("vision_cfg", timm_model_name="no_such_model"),
         "describes no model that open_clip builds"),
        (with_code, "cannot be had ("),
    ],
)  # fmt: skip
def test_a_file_that_is_missing_or_holds_something_else_is_one_sentence(
    mine: Path, change: Callable[[Path], object], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    change(mine)
    with pytest.raises(ModelError) as fault:
        assert load(mine).text.width
    assert sentence in str(fault.value)
    assert "\n" not in str(fault.value)
    assert "code ran" not in capsys.readouterr().out


def test_a_folder_without_a_tokenizer_gives_features(mine: Path) -> None:
    for path in mine.glob("tokenizer*.json"):
        path.unlink()
    frozen = load(mine)
    assert F.normalize(frozen.encode_raw(torch.zeros(1, 3, 160, 160)), dim=-1).shape == (1, 32)
    with pytest.raises(ModelError, match=r"its folder .* has no tokenizer \(tokenizer\.json"):
        frozen.text.texts(NAMES, "{}")


TEXT = '{"model_cfg": {"text_cfg": %s, "vision_cfg": %s}}'


def test_a_damaged_configuration_is_one_sentence(mine: Path) -> None:
    for text in (
        *(TEXT % pair for pair in (("null", "{}"), ("{}", "null"), ("[]", "{}"), ("7", "7"))),
        '{"model_cfg": {"text_cfg": {}}}',
        *('{"model_cfg": null}', '{"model_cfg": [1]}', "[]", "null", "", "[" * 100_000),
        *('{"a":' * 100_000, "\udcff", " " * (1 << 20) + TEXT % ("{}", "{}")),
    ):
        (mine / CONFIG).write_bytes(text.encode("utf-8", "surrogateescape"))
        with pytest.raises(ModelError, match="is no configuration of open_clip, which has model_c"):
            load(mine)


@pytest.mark.parametrize("name", [CONFIG, "tokenizer.json", SIZES])
def test_what_is_no_file_is_not_read(mine: Path, name: str) -> None:
    for make in (os.mkfifo, lambda path: path.symlink_to("/dev/zero")):
        (mine / name).unlink(missing_ok=True)
        make(mine / name)
        with pytest.raises(ModelError, match=f"{name} is neither a file nor a folder"):
            load(mine)


@pytest.mark.parametrize(
    ("settings", "what", "remedy"),
    [
        (ModelSettings(name="hf-hub:microsoft/nothing-here"),
         "the model hf-hub:microsoft/nothing-here",
         "download the files and set model.name to local-dir:FOLDER"),
        (ModelSettings(name="ViT-B-16", pretrained="openai"),
         "the checkpoint 'openai' of ViT-B-16", "give a file as model.pretrained"),
    ],
)  # fmt: skip
def test_without_a_network_one_question_is_followed_by_one_sentence(
    settings: ModelSettings,
    what: str,
    remedy: str,
    session: Session,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The hub's library would ask six times for each of several files, 100 s in all."""
    with pytest.raises(ModelError) as fault:
        clip.load(settings)
    assert str(fault.value) == (
        f"{what} is not on this machine, and {constants.ENDPOINT} does not answer (Name or service "
        f"not known): connect it once, or {remedy}."
    )
    assert (session.asked, caplog.text, constants.HF_HUB_OFFLINE) == (ONCE, "", False)


def test_the_hub_is_a_folder_in_its_cache(
    folder: Path, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def snapshot(name: str, **options: Any) -> str:
        asked.append((name, options))
        return str(folder)

    class Api:
        def list_repo_files(self, name: str) -> list[str]:
            return [*(one.name for one in folder.iterdir()), "README.md", "pytorch_model.bin"]

    session.fault = None
    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    monkeypatch.setattr(huggingface_hub, "HfApi", Api)
    found = clip.load(ModelSettings(name="hf-hub:owner/name", device="cpu"))
    assert found.fingerprint == load(folder).fingerprint
    assert (found.label, session.asked) == ("hf-hub:owner/name", ONCE)
    ((name, options),) = asked
    wanted = set(options["allow_patterns"])
    assert name == "owner/name"
    assert {"open_clip_config.json", "config.json", "open_clip_pytorch_model.bin"} <= wanted
    assert "tokenizer.json" in wanted
    assert not wanted & {"README.md", "pytorch_model.bin"}


def test_a_tokenizer_that_is_not_here_is_missing(session: Session) -> None:
    """SigLIP's tokenizer is on the hub; nothing waits for it."""
    tokenizer, missing = tokenizer_of({"hf_tokenizer_name": "owner/missing"})
    assert tokenizer is None
    assert missing.startswith("its tokenizer owner/missing is not on this machine, and https://")
    assert session.asked == ONCE


def test_without_transformers_one_sentence_says_what_to_install(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "transformers", None)
    with pytest.raises(
        ModelError, match=r"which is not installed: run `pip install 'fednode\[hf\]"
    ):
        load(folder)
    missing = tokenizer_of({"hf_tokenizer_name": "owner/name"})[1]
    assert missing.endswith("run `pip install 'fednode[hf]'`")


def test_without_a_network_the_weights_come_from_the_cache(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, offline = torch.nn.Linear(1, 1), list[bool]()

    def create(*_: Any, **__: Any) -> torch.nn.Module:
        offline.append(constants.HF_HUB_OFFLINE)
        return made

    monkeypatch.setattr(open_clip, "create_model", create)
    chosen = ModelSettings(name="ViT-B-16", pretrained="openai")
    assert load_model(chosen).model is made
    assert (offline, constants.HF_HUB_OFFLINE) == ([True], False)
    session.fault = None
    monkeypatch.setattr(open_clip, "create_model", mock.Mock(side_effect=OSError("no route")))
    with pytest.raises(ModelError, match=r"the checkpoint 'openai' of .* cannot be had .*no route"):
        load_model(chosen)


def test_the_hub_is_off_inside_and_as_before_afterwards(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.fault = TimeoutError()
    assert unreachable_reason() == "TimeoutError", "a fault without words is named by its kind"
    for before, now in ((False, True), (False, False), (True, False)):
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", before)
        with suppress(KeyError), offline(now):
            assert (before or now) == constants.HF_HUB_OFFLINE
            raise KeyError
        assert before == constants.HF_HUB_OFFLINE
    # Now the user turned the hub off, who is not asked for it again.
    assert (unreachable_reason(), session.asked) == ("", ONCE)


def test_only_open_clip_s_records_about_weights_are_dropped(
    caplog: pytest.LogCaptureFixture,
) -> None:
    root, handlers = logging.getLogger(), list(logging.getLogger().handlers)
    with without_records():
        logging.warning("No pretrained weights loaded for model %s", "x")
        logging.warning("Failed to download weights for %s", "x")
        logging.warning("something else")
    assert caplog.messages == ["something else"]
    assert root.handlers == handlers
    logging.warning("No pretrained weights loaded afterwards")
    assert caplog.messages[-1] == "No pretrained weights loaded afterwards"


def test_biomedclip_s_sizes_fill_its_published_file(tmp_path: Path) -> None:
    """open_clip_pytorch_model.bin on the hub has 783,705,670 bytes, four for each weight."""
    text = folders.REAL["model_cfg"]["text_cfg"]
    (tmp_path / "open_clip_config.json").write_text(json.dumps(folders.REAL))
    with text_sizes(text), torch.device("meta"):
        model: Any = open_clip.create_model(
            f"local-dir:{tmp_path}", load_weights=False, pretrained_text=False, device="meta"
        )
    count = sum(one.numel() for one in model.parameters())
    assert 4 * count == pytest.approx(783_705_670, rel=2e-4)


def asked() -> Any:
    return __import__("open_clip.hf_model", fromlist=["x"])


def test_an_unknown_tower_says_where_its_sizes_go_and_open_clip_asks_as_before() -> None:
    before = asked().AutoConfig
    wanted = r"the sizes of the text tower somebody/bert are unknown.*hub.*local-dir:FOLDER"
    unknown = text_sizes({"hf_model_name": "somebody/bert"})
    with offline(True), unknown, pytest.raises(ModelError, match=wanted):
        asked().AutoConfig.from_pretrained("somebody/bert")
    with text_sizes({"hf_model_name": BIOMEDICAL[0]}):
        assert asked().AutoConfig.from_pretrained("x").model_type == "bert"
    assert asked().AutoConfig is before


def test_biomedclip_has_the_sentence_of_its_authors_and_all_others_have_clip_s() -> None:
    for name in ("BiomedBERT", "PubMedBERT"):  # the names that its configuration had on the hub
        text = {"hf_model_name": f"microsoft/BiomedNLP-{name}-base-uncased-abstract"}
        assert template_of(text) == "this is a photo of {}"
        assert TuningSettings(template=template_of(text)).template == template_of(text)
    texts = [open_clip.get_model_config(name)["text_cfg"] for name in open_clip.list_models()]
    assert {template_of(text) for text in texts} == {PLAIN}
