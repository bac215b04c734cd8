"""What a program asks and does about exports of its model."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tony_provider.runtime.common import contract
from tony_provider.runtime.sdk import tony_sdk


@pytest.fixture
def exports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "exports"
    directory.mkdir()
    monkeypatch.setenv(contract.ENV_EXPORT_DIR, str(directory))
    return directory


def write(directory: str, text: str) -> None:
    Path(directory, "weights").write_text(text)


def test_a_request_is_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "request"
    monkeypatch.setenv(contract.ENV_EXPORT_REQUEST, str(file))
    assert not tony_sdk.export_requested()
    file.touch()
    assert tony_sdk.export_requested()
    assert not tony_sdk.export_requested()


def test_an_export_appears_when_it_is_whole(exports: Path) -> None:
    with tony_sdk.export(120) as directory:
        write(directory, "some")
        assert [contract.step_of_export(path.name) for path in exports.iterdir()] == [None]
    [path] = exports.iterdir()
    assert contract.step_of_export(path.name) == 120
    assert (path / "weights").read_text() == "some"


def test_half_an_export_is_thrown_away(exports: Path) -> None:
    def fail(directory: str) -> None:
        write(directory, "half")
        raise RuntimeError("no more room")

    with pytest.raises(RuntimeError, match="no more room"), tony_sdk.export(120) as directory:
        fail(directory)
    assert list(exports.iterdir()) == []


def test_of_one_step_the_first_counts(exports: Path) -> None:
    for text in ("one", "two"):
        with tony_sdk.export(120) as directory:
            write(directory, text)
    assert [(path.name, (path / "weights").read_text()) for path in exports.iterdir()] == [("step-120", "one")]


def test_where_nobody_wants_it_it_goes_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(contract.ENV_EXPORT_DIR, raising=False)
    monkeypatch.delenv(contract.ENV_EXPORT_REQUEST, raising=False)
    assert not tony_sdk.export_requested()
    with tony_sdk.export(1) as directory:
        write(directory, "some")
    assert not Path(directory).exists()


def test_a_step_is_a_number_from_0_on(exports: Path) -> None:
    with pytest.raises(ValueError, match=re.escape("a step of at least 0")), tony_sdk.export(-1):
        pass


def test_what_the_name_of_an_export_is() -> None:
    for step in (0, 7, 10**17):
        assert contract.step_of_export(contract.export_name(step)) == step
    for name in ("step-", "step-07", "step--1", "step-1.tmp-0a", "step-" + "9" * 40, "step-x", "other-7", "step-²"):
        assert contract.step_of_export(name) is None
