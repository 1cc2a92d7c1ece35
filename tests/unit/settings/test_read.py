"""Settings: what wins over what, and one clear sentence for everything that is wrong."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from fednode import registry
from fednode.errors import ConfigError
from fednode.policies.zerodfl import ZeroDFL, ZeroDFLConfig
from fednode.settings.faults import meant
from fednode.settings.read import (
    Chosen,
    Settings,
    Source,
    chosen_of,
    load_settings,
    settings_of,
    start_of,
    tree_of,
)


def write(tmp_path: Path, text: str, name: str = "node.yaml") -> Path:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


def fault(tmp_path: Path, text: str, *flags: str) -> str:
    """Return what is said of a node.yaml, without the folder it is in."""
    with pytest.raises(ConfigError) as caught:
        load_settings(write(tmp_path, text), {}, flags)
    return str(caught.value).replace(f"{tmp_path}/", "")


def test_defaults_file_environment_flags_in_that_order(tmp_path: Path) -> None:
    path = write(tmp_path, "rounds: {max: 1, deadline_s: 1.0, lead: 3}\nseed: 2")
    environment = {"FEDNODE_ROUNDS__MAX": "5", "FEDNODE_ROUNDS__LEAD": "4", "FEDNODE_NAME": "x"}
    settings = load_settings(path, environment, ["rounds.lead=6", "tuning.init_words=null"])
    assert (settings.rounds.deadline_s, settings.rounds.max, settings.rounds.lead) == (1.0, 5, 6)
    assert settings.seed == 2
    assert settings.tuning.lr == 0.003


def test_the_policy_is_zerodfl_unless_it_is_named(tmp_path: Path) -> None:
    path = write(tmp_path, "policy: {recipients: 3}")
    for given, flags, written in (
        (None, [], {}),
        (path, [], {"recipients": 3}),
        (path, ["policy.recipients=2"], {"recipients": 2}),
        (None, ["policy.recipients=2"], {"recipients": 2}),
    ):
        config = ZeroDFLConfig(recipients=written.get("recipients", ZeroDFLConfig().recipients))
        chosen = Chosen(ZeroDFL, config, {"name": "zerodfl", **written})
        assert load_settings(given, {}, flags).policy == chosen


def test_a_tree_of_settings_holds_what_was_written_of_the_policy() -> None:
    """It is read back as equal settings: state directories and exported files rely on it."""
    settings = load_settings(None, {}, ["policy.recipients=3", "seed=7"])
    tree = tree_of(settings)
    assert list(tree) == [one.name for one in fields(Settings)]
    assert (tree["policy"], tree["seed"]) == ({"name": "zerodfl", "recipients": 3}, 7)
    assert settings_of(Source("tree", tree)) == settings


def test_a_choice_without_faults_is_the_policy_with_its_settings() -> None:
    chosen = chosen_of({"name": "promptfl", "wire_dtype": "float16"})
    assert (chosen.name, chosen.wire_dtype, chosen.caution) == ("promptfl", "float16", "")
    assert chosen_of({"name": "local"}).wire_dtype == "float32"
    assert chosen_of({"name": "zerodfl"}).caution.startswith("policy.admit_rise is null")
    assert chosen_of({"name": "zerodfl", "admit_rise": 0.05}).caution == ""
    with pytest.raises(ConfigError, match=r"policy\.participants is -1; it must be at least 0\."):
        chosen_of({"name": "promptfl", "participants": -1})


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("seed: 1\nrounds:\n  mx: 3", "line 3: unknown key 'rounds.mx'; did you mean 'max'?"),
        (
            "rounds:\n  start: {peer: 1}",
            "line 2: unknown key 'rounds.start.peer'; did you mean 'peers'?",
        ),
        ("lr: 1", "line 1: unknown key 'lr'; did you mean 'tuning.lr'?"),
        ("tuning: {shots: 1}", "line 1: unknown key 'tuning.shots'; did you mean 'data.shots'?"),
        (
            "data: {shots: all}",
            "line 1: data.shots is 'all'; it must be a whole number; 0 takes all.",
        ),
        ("xyzzy: 1", "line 1: unknown key 'xyzzy'; remove it."),
        ("\nseed: many", "line 2: seed is 'many'; it must be a whole number."),
        (
            "rounds:\n  mode: fast",
            "line 2: rounds.mode is 'fast'; it must be 'async', 'sync' or null.",
        ),
        (
            "tuning:\n  betas: [0.9]",
            "line 2: tuning.betas is [0.9]; it must be a list of 2 numbers.",
        ),
        ("tuning:\n  betas: [true, 0.9]", "line 2: tuning.betas.0 is true; it must be a number."),
        ("policy: zerodfl", "line 1: policy is 'zerodfl'; it must be a section."),
        ("data: {path: null}", "line 1: data.path is null; it must be text."),
        # The token is not repeated.
        ("page: {token: a}", "line 1: page.token is too short; give at least 16 characters."),
        ("seed: 1\nseed: 2", "line 2: the key 'seed' is given twice."),
        (
            "tuning: {start: own, init_words: a photo of a}",
            "line 1: tuning.start is 'own', and tuning.init_words 'a photo of a' give every node "
            "the same start: set tuning.start to common, or tuning.init_words to null.",
        ),
        ("- a", " holds no settings: it must be a mapping of keys to values."),
    ],
)
def test_a_fault_is_a_sentence_with_its_place(tmp_path: Path, text: str, sentence: str) -> None:
    said = fault(tmp_path, text)
    assert said.removeprefix("node.yaml").removeprefix(", ") == sentence


SHARED = {name: registry.policy(name).shared_state for name in registry.names()}


@pytest.mark.parametrize("name", SHARED)
def test_own_starts_are_for_policies_whose_nodes_share_no_state(name: str) -> None:
    domains = ("policy.domains=[a, b]",) if name in {"feddpt", "diprompt"} else ()
    flags = (f"policy.name={name}", *domains)
    usual = start_of(load_settings(None, {}, flags))
    assert usual == ("common" if SHARED[name] else "own"), "if it is not set"
    flags = (*flags, "tuning.init_words=null")
    if SHARED[name]:
        with pytest.raises(ConfigError) as caught:
            load_settings(None, {}, (*flags, "tuning.start=own"))
        assert str(caught.value) == (
            f"--set tuning.start=own: tuning.start is 'own', and all nodes of policy {name} must "
            "begin from the same prompts: set it to common or null."
        )
    else:
        assert start_of(load_settings(None, {}, (*flags, "tuning.start=own"))) == "own"
    assert start_of(load_settings(None, {}, (*flags, "tuning.start=common"))) == "common"


def test_nodes_that_start_from_words_start_alike() -> None:
    words = ("policy.name=zerodfl", "tuning.init_words=a photo of a")
    assert start_of(load_settings(None, {}, words)) == "common"


def test_a_fault_hides_no_other(tmp_path: Path) -> None:
    """A wrong type, a range, an unknown key and the policy's faults: all in one text."""
    text = (
        "rounds:\n  max: -1\n  deadline_s: 1 minute\n  lead: -1\n  start: {peers: -3}\n"
        "tuning:\n  lr: true\n  momentum: 2\nsed: 1\npolicy:\n  recipients: 0\n  rows_shared: x\n"
    )
    assert sorted(fault(tmp_path, text).splitlines()) == [
        "node.yaml, line 11: policy.recipients is 0; it must be at least 1.",
        "node.yaml, line 12: policy.rows_shared is 'x'; it must be a whole number or null.",
        "node.yaml, line 2: rounds.max is -1; it must be at least 0.",
        "node.yaml, line 3: rounds.deadline_s is '1 minute'; it must be a number.",
        "node.yaml, line 4: rounds.lead is -1; it must be at least 0.",
        "node.yaml, line 5: rounds.start.peers is -3; it must be at least 0.",
        "node.yaml, line 7: tuning.lr is true; it must be a number.",
        "node.yaml, line 8: tuning.momentum is 2; it must be from 0 to 0.9999.",
        "node.yaml, line 9: unknown key 'sed'; did you mean 'seed'?",
    ]


def test_keys_of_another_policy_are_unknown(tmp_path: Path) -> None:
    text = "policy:\n  name: zerodfl\n  recipients: 5\n"
    assert fault(tmp_path, text, "policy.name=promptfl") == (
        "node.yaml, line 3: 'policy.recipients' is of another policy than promptfl; remove it."
    )
    path = write(tmp_path, text)
    whole = load_settings(path, {}, ["policy={name: promptfl}"])
    assert whole == load_settings(None, {}, ["policy.name=promptfl"])


def test_a_file_that_is_not_there_or_no_yaml(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"There is no file .*nowhere.yaml; `fednode init`"):
        load_settings(tmp_path / "nowhere.yaml", {})
    with pytest.raises(ConfigError, match="cannot be read"):
        load_settings(tmp_path, {})
    said = fault(tmp_path, "seed: 1\na: [1")
    assert said.startswith("node.yaml is not valid YAML: line 2, column 6: ")
    flagged = fault(tmp_path, "seed: 1", "seed=[1")
    assert flagged.startswith("--set seed=[1: '[1' is not valid YAML: line 1, column 3: ")
    assert "unicode string" not in said + flagged
    (tmp_path / "b.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match=r"b\.yaml, line 1, is not UTF-8 text: write the line"):
        load_settings(tmp_path / "b.yaml", {})


@pytest.mark.parametrize("flag", ["rounds.max", "seed.x=1", "seed=[1"])
def test_flags_and_variables_are_checked_too(tmp_path: Path, flag: str) -> None:
    assert flag in fault(tmp_path, "seed: 1", flag)
    with pytest.raises(ConfigError, match="FEDNODE_ROUNDS__MX: unknown key"):
        load_settings(None, {"FEDNODE_ROUNDS__MX": "1"})
    said = fault(tmp_path, "seed: 1", "round.max=3")
    assert said == "--set round.max=3: unknown key 'round'; did you mean 'rounds'?"
    said = fault(tmp_path, "rounds: {max: 3}", "rounds.max=-1", "tuning.lrr=1")
    assert "--set tuning.lrr=1: unknown key 'tuning.lrr'; did you mean 'lr'?" in said


def test_a_variable_may_name_a_file_with_a_secret(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("1234567890123456\n")
    environment = {
        "FEDNODE_PROXY_FILE": str(tmp_path / "secret"),
        "FEDNODE_PAGE__TOKEN_FILE": str(tmp_path / "secret"),
    }
    settings = load_settings(None, environment)
    assert (settings.proxy, settings.page.token) == ("1234567890123456", "1234567890123456")
    with pytest.raises(ConfigError, match=r"FEDNODE_PROXY_FILE is '.*none', which cannot be read"):
        load_settings(None, {"FEDNODE_PROXY_FILE": str(tmp_path / "none")})
    with pytest.raises(ConfigError, match="FEDNODE_PROXI_FILE: unknown key 'proxi'; did you mean"):
        load_settings(None, {"FEDNODE_PROXI_FILE": str(tmp_path / "secret")})


@pytest.mark.parametrize("policy", ["promptfl", "zerodfl", "local"])
def test_a_policy_that_trains_needs_an_end_of_its_rounds_or_a_pause_between_them(
    policy: str,
) -> None:
    def made(name: str = policy, kind: str = "torch", **rounds: float) -> Settings:
        tree = {"policy": {"name": name}, "rounds": rounds, "tuning": {"kind": kind}}
        return settings_of(Source("node.yaml", tree))

    with pytest.raises(ConfigError, match=r"rounds\.min_interval_s is 0, so policy"):
        made(max=0)
    assert made(max=0, min_interval_s=0.5).rounds.max == 0
    assert made(max=5).rounds.min_interval_s == 0
    assert made("gda", max=0, min_interval_s=0).rounds.min_interval_s == 0
    assert made(kind="closed-form", max=0).rounds.max == 0


def test_words_that_yaml_takes_for_switches_and_numbers(tmp_path: Path) -> None:
    """A key is text as it is written; a name in a list needs quotes, and the sentence says so."""
    file = tmp_path / "c.yaml"
    file.write_text("data: {rename: {no: healthy, 0: zero, 010: ten, 1.50: x}}")
    rename = load_settings(file, {}).data.rename
    assert rename == {"no": "healthy", "0": "zero", "010": "ten", "1.50": "x"}
    said = fault(tmp_path, "data: {classes: [yes, no]}")
    assert 'it must be text: write it in quotes, such as "yes" or "no".' in said
    said = fault(tmp_path, "data: {rename: {a: 10}}")
    assert 'it must be text: write it in quotes, such as "10".' in said
    said = fault(tmp_path, "data: {classes: [2024-01-31, b]}")
    assert 'is 2024-01-31; it must be text: write it in quotes, such as "2024-01-31".' in said


def test_the_name_that_is_nearest_to_what_was_said_is_asked_for() -> None:
    assert meant("hospitl-b", ["hospital-a", "hospital-b"]) == "did you mean 'hospital-b'?"
    assert meant("zoo", ["hospital-a"]) == meant("zoo", []) == ""
