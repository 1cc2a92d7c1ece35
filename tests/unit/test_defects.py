"""A report of a defect: the details in a file, one sentence for the user."""

from __future__ import annotations

from pathlib import Path

import pytest

from fednode.defects import reported


def test_the_details_are_in_a_file_that_the_sentence_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def fail() -> None:
        raise KeyError("lost")

    with pytest.raises(KeyError) as caught:
        fail()
    said = reported(caught.value)
    (file,) = tmp_path.glob("fednode-crash-*.txt")
    assert said == (
        f"a defect of fednode itself (KeyError: 'lost'); the details are in {file}: please report "
        "them."
    )
    assert "in fail" in file.read_text()
