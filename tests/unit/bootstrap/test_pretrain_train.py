"""Training learns, resumes exactly, and its export is the model that was trained."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from open_clip.tokenizer import SimpleTokenizer
from PIL import Image

from bootstrap.pretrain import __main__ as cli
from bootstrap.pretrain import evaluate, export, model, pack, report, sources, styles, wordnet
from bootstrap.pretrain.batches import Corpus
from bootstrap.pretrain.captions import Captioner
from bootstrap.pretrain.checkpoint import load_checkpoint, save_checkpoint
from bootstrap.pretrain.muon import orthogonalize
from bootstrap.pretrain.train import Settings, Stage, Trainer, parse_stages, run
from node.clip import mini
from node.errors import ConfigError, ModelError
from tests.unit.bootstrap import pretrain_world as world

STAGES = (Stage(0.6, 16, 24), Stage(1.0, 24, 16))
CPU = torch.device("cpu")


@pytest.fixture(scope="module", autouse=True)
def tiny_towers() -> Iterator[None]:
    """Make the towers small: what is tested does not depend on their width."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(model.CONFIG, "embed_dim", 32)
        for key, value in {"width": 64, "layers": 2, "head_width": 32}.items():
            patch.setitem(model.CONFIG["vision_cfg"], key, value)
        for key, value in {"width": 48, "layers": 1, "heads": 2}.items():
            patch.setitem(model.CONFIG["text_cfg"], key, value)
        yield


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    root = tmp_path_factory.mktemp("pretrain")
    words = wordnet.read_wordnet(world.write_wordnet(root / "wordnet"))
    for source in (
        *sources.read_tiny_imagenet(world.write_tiny_imagenet(root / "tiny"), words),
        *sources.read_flickr8k(world.write_flickr8k(root / "flickr"), words),
    ):
        pack.pack(source, root / "packed")
    return Corpus(root / "packed", words, Captioner(SimpleTokenizer().encode))


def trainer(corpus: Corpus, steps: int = 10, seed: int = 1) -> Trainer:
    settings = Settings(
        seed=seed, steps=steps, stages=STAGES, fresh=6, nouns=2, warmup=1, average=0.5
    )
    return Trainer(corpus, settings, CPU)


def test_training_lowers_the_loss_and_learns_the_colours(corpus: Corpus) -> None:
    run = trainer(corpus, steps=20)
    losses = [run.train_step() for _ in range(20)]
    assert run.progress == 1.0
    assert losses[-1].concept < 0.5 * losses[0].concept
    scores = evaluate.held_out_accuracy(corpus, run.average, 24, CPU)
    assert scores["tiny-imagenet"] > 0.6  # three classes
    assert run.rate() == 0.0


def test_a_resumed_run_equals_an_uninterrupted_one(corpus: Corpus, tmp_path: Path) -> None:
    straight = trainer(corpus, steps=3)
    for _ in range(3):
        straight.train_step()
    first = trainer(corpus, steps=3)
    first.train_step()
    save_checkpoint(tmp_path / "checkpoint.pt", first.state())
    second = trainer(corpus, steps=3)
    second.restore(load_checkpoint(tmp_path / "checkpoint.pt"))
    assert second.step == 1
    second.train_step()
    second.train_step()
    for name, value in straight.model.state_dict().items():
        torch.testing.assert_close(value, second.model.state_dict()[name], rtol=0, atol=1e-6)
    assert second.images == straight.images


def test_a_new_run_begins_from_the_weights_of_another_with_other_tokens(corpus: Corpus) -> None:
    state = trainer(corpus).state()
    other = {**state, "index": state["index"][1:]}
    other["average"] = {
        k: v[1:] if k == "token_embedding.weight" else v for k, v in state["average"].items()
    }
    new = trainer(corpus, seed=2)
    new.start_from(other)
    table = new.model.token_embedding.weight
    torch.testing.assert_close(table[1:], state["average"]["token_embedding.weight"][1:])
    torch.testing.assert_close(table[0], table[1:].mean(dim=0))
    assert new.step == 0
    torch.testing.assert_close(new.bank.norm(dim=1), torch.ones(len(new.bank)))


def test_a_new_run_begins_from_what_was_exported(corpus: Corpus, tmp_path: Path) -> None:
    old = trainer(corpus)
    old.train_step()
    checkpoint = {"average": old.average, "index": torch.from_numpy(corpus.index)}
    export.export(checkpoint, tmp_path, image_size=model.CONFIG["vision_cfg"]["image_size"])
    new = trainer(corpus, seed=2)
    new.start_from(export.starting_point(tmp_path))
    for name, value in new.model.state_dict().items():
        torch.testing.assert_close(value, old.average[name], rtol=1e-3, atol=1e-3)


def test_a_run_logs_and_saves_at_its_end(corpus: Corpus, tmp_path: Path) -> None:
    run(trainer(corpus, steps=1), tmp_path)
    assert load_checkpoint(tmp_path / "checkpoint.pt")["step"] == 1
    header, row = (tmp_path / "training-log.csv").read_text().splitlines()
    assert header.startswith("step,minutes,images,size,loss")
    assert row.startswith("1,")


def test_export_and_expand_give_the_trained_model(corpus: Corpus, tmp_path: Path) -> None:
    done = trainer(corpus)
    done.train_step()
    checkpoint = {"average": done.average, "index": torch.from_numpy(corpus.index)}
    assert export.export(checkpoint, tmp_path, image_size=48) < export.LARGEST
    full, _, seen_tokens = mini.expand(tmp_path)
    assert seen_tokens == set(corpus.index.tolist())
    assert full.token_embedding.weight.shape == (model.VOCABULARY, 48)
    assert full.visual.image_size == (48, 48)
    small = model.build(model.CONFIG, len(corpus.index)).eval()
    small.load_state_dict(done.average)
    tokens = SimpleTokenizer()(["a photo of a dog.", "an auto"])
    cut = [[int(t) for t in row if t] for row in tokens]
    images = torch.rand(2, 3, 48, 48, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        text = torch.nn.functional.normalize(full.encode_text(tokens), dim=-1)
        expected = model.encode_texts(small, corpus.rows(cut))
        torch.testing.assert_close(text, expected, rtol=0, atol=2e-3)
        seen = full.encode_image(model.normalize_pixels(images), normalize=True)
        torch.testing.assert_close(seen, model.encode_images(small, images), rtol=0, atol=2e-3)
        # A token that training never touched stands for the mean of those that it did.
        unseen = full.token_embedding.weight[next(i for i in range(400) if i not in corpus.index)]
        rows = done.average["token_embedding.weight"].mean(dim=0)
        torch.testing.assert_close(unseen, rows, rtol=0, atol=1e-3)


def test_zip_accuracy_counts_classes(corpus: Corpus, tmp_path: Path) -> None:
    done = trainer(corpus)
    checkpoint = {"average": done.average, "index": torch.from_numpy(corpus.index)}
    export.export(checkpoint, tmp_path, image_size=16)
    path = tmp_path / "images.zip"
    Image.new("RGB", (30, 20)).save(tmp_path / "a.jpg")
    with zipfile.ZipFile(path, "w") as file:
        for name in ("photo/dog/1.jpg", "photo/car/1.jpg", "photo/left_out/1.jpg"):
            file.write(tmp_path / "a.jpg", name)
    classes = evaluate.zip_classes(path, "photo/", ("left_out",))
    assert sorted(classes) == ["car", "dog"]
    share, mean, count = evaluate.zip_accuracy(
        mini.expand(tmp_path)[0], SimpleTokenizer(), path, classes, 16
    )
    assert (share, mean, count) == (0.5, 0.5, 2)  # equal images, so one of the two classes is right


def test_the_report_has_a_row_for_every_domain_and_part(corpus: Corpus, tmp_path: Path) -> None:
    checkpoint = {"average": trainer(corpus).average, "index": torch.from_numpy(corpus.index)}
    export.export(checkpoint, tmp_path, image_size=16)
    Image.new("RGB", (30, 20)).save(tmp_path / "a.jpg")
    pacs, caltech = tmp_path / "pacs.zip", tmp_path / "caltech.zip"
    with zipfile.ZipFile(pacs, "w") as file:
        for domain in report.PACS_DOMAINS:
            for name in ("dog", "horse"):
                file.write(tmp_path / "a.jpg", f"{domain}/{name}/1.jpg")
    with zipfile.ZipFile(caltech, "w") as file:
        for name in ("Faces", "Faces_easy", "sea_horse"):
            file.write(tmp_path / "a.jpg", f"101_ObjectCategories/{name}/1.jpg")
    rows = report.zero_shot_rows(tmp_path, pacs, caltech)
    assert rows[0] == "| PACS photo | 2 | 50.0 % | 50.0 % | 50.0 % |"
    assert rows[4] == "| PACS, mean of domains | | 50.0 % | | |"
    assert rows[5] == "| Caltech-101, 2 classes | 2 | 50.0 % | 50.0 % | 50.0 % |"
    (held,) = report.held_out_rows(tmp_path, corpus)
    assert held.startswith("| tiny-imagenet | 36 | ")


def test_a_checkpoint_of_other_data_or_a_torn_one_is_refused(
    corpus: Corpus, tmp_path: Path
) -> None:
    path = tmp_path / "checkpoint.pt"
    with pytest.raises(ModelError, match="does not exist"):
        load_checkpoint(path)
    state = trainer(corpus).state()
    save_checkpoint(path, {**state, "index": state["index"][1:]})
    with pytest.raises(ModelError, match="other data"):
        trainer(corpus).restore(load_checkpoint(path))
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(ModelError, match="not a readable checkpoint"):
        load_checkpoint(path)
    torch.save({"something": 1}, path)
    with pytest.raises(ModelError, match="not a pretraining checkpoint"):
        load_checkpoint(path)


def test_a_broken_export_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no exported model"):
        mini.expand(tmp_path)


def test_a_damaged_export_is_refused(corpus: Corpus, tmp_path: Path) -> None:
    checkpoint = {"average": trainer(corpus).average, "index": torch.from_numpy(corpus.index)}
    export.export(checkpoint, tmp_path)
    path = tmp_path / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[-50] ^= 1
    path.write_bytes(content)
    with pytest.raises(ModelError, match="is damaged: its SHA-256"):
        mini.expand(tmp_path)


def test_text_and_image_sizes_do_not_change_the_full_model(corpus: Corpus) -> None:
    small = model.build(model.CONFIG, len(corpus.index)).eval()
    text = corpus.rows([[49406, *corpus.captioner.tokens("dog"), 49407]])
    wide = torch.nn.functional.pad(text, (0, 20))
    with torch.inference_mode():
        torch.testing.assert_close(
            model.encode_texts(small, text), model.encode_texts(small, wide), atol=1e-5, rtol=0
        )
        image = torch.rand(1, 3, 64, 64)
        plain = small.encode_image(model.normalize_pixels(image), normalize=True)
        torch.testing.assert_close(plain, model.encode_images(small, image), atol=1e-5, rtol=0)


def test_orthogonalize_moves_singular_values_to_one() -> None:
    gen = torch.Generator().manual_seed(0)
    for shape in ((32, 64), (64, 32)):
        out = orthogonalize(torch.randn(shape, generator=gen), 5)
        values = torch.linalg.svdvals(out)
        assert values.min() > 0.5
        assert values.max() < 1.4


def test_styles_keep_shape_and_range() -> None:
    gen = torch.Generator().manual_seed(0)
    raw = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (20, 32, 32, 3), np.uint8))
    images = styles.jitter(styles.random_crops(raw, 24, gen), gen)
    out, style = styles.restyle(images, (0.2, 0.2, 0.2), gen)
    assert out.shape == (20, 3, 24, 24)
    assert 0.0 <= float(out.min()) <= float(out.max()) <= 1.0
    assert style.bincount().tolist() == [8, 4, 4, 4]
    drawn = out[style == 1]
    assert torch.equal(drawn[:, 0], drawn[:, 1])  # a sketch has no colour
    assert torch.equal(out[style == 0], images[style == 0])


@pytest.mark.parametrize("text", ["1:32", "1:30:8", "0.5:32:8,0.2:64:8", "x:32:8"])
def test_bad_stages_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="stages"):
        parse_stages(text)


def test_the_command_line_ends_with_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    absent = str(tmp_path / "absent")
    assert cli.main(["pack", "--packed", absent, "--wordnet", absent, "--cifar10", absent]) == 3
    assert cli.main(["export", "--checkpoint", absent, "--out", absent]) == 3
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert all(line.startswith("pretrain: ") and "absent" in line for line in lines)
