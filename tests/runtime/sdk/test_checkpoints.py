"""What a program says and asks about its checkpoints."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tony_provider.runtime.artifacts.manifest import scan
from tony_provider.runtime.checkpoint.save_finder import Save, SaveFinder
from tony_provider.runtime.common import contract
from tony_provider.runtime.sdk import tony_sdk


def complete(directory: Path) -> list[Save]:
    """The complete saves of a directory that have a manifest."""
    return [
        save
        for save in SaveFinder(directory).find(scan(directory)).saves
        if save.is_manifest and save.proven and not save.problem
    ]


@pytest.fixture(autouse=True)
def outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in vars(contract).values():
        if isinstance(name, str) and name.startswith("TONY_"):
            monkeypatch.delenv(name, raising=False)


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "checkpoints"
    (directory / "model").mkdir(parents=True)
    (directory / "model" / "a").write_text("one")
    (directory / "model" / "deep").mkdir()
    (directory / "model" / "deep" / "b").write_text("three")
    (directory / "optimizer").write_text("two")
    monkeypatch.setenv(contract.ENV_CHECKPOINT_DIR, str(directory))
    return directory


def test_outside_a_job_there_is_nothing_to_do(tmp_path: Path) -> None:
    assert tony_sdk.resume_from() is None
    assert tony_sdk.resume_step() == 0
    assert tony_sdk.warm_start() is None
    assert tony_sdk.checkpoint_requested() is False
    assert tony_sdk.commit_checkpoint(1, tmp_path) is False
    assert tony_sdk.commit_checkpoint(-1) is False


def test_where_to_go_on_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(contract.ENV_RESUME_FROM, "/c/ckpt-20")
    monkeypatch.setenv(contract.ENV_RESUME_STEP, "20")
    monkeypatch.setenv(contract.ENV_WARM_START, "/w")
    assert (tony_sdk.resume_from(), tony_sdk.resume_step(), tony_sdk.warm_start()) == ("/c/ckpt-20", 20, "/w")


def test_a_request_is_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "request"
    monkeypatch.setenv(contract.ENV_CHECKPOINT_REQUEST, str(file))
    for _ in range(2):
        assert not tony_sdk.checkpoint_requested()
        file.touch()
        assert tony_sdk.checkpoint_requested()
        assert not tony_sdk.checkpoint_requested()
        assert not file.exists()


def test_a_committed_checkpoint_is_found(directory: Path) -> None:
    (directory / "not of it").touch()
    assert tony_sdk.commit_checkpoint(20, "model", directory / "optimizer")
    (found,) = complete(directory)
    assert (found.step, found.entry, found.format) == (20, "model", "manifest")
    assert found.files == ("step-20.tony.json", "model/a", "model/deep/b", "optimizer")
    assert tony_sdk.commit_checkpoint(21, directory / "optimizer")
    assert [save.step for save in complete(directory)] == [20, 21]
    (directory / "optimizer").write_text("longer than two")
    assert complete(directory) == []
    assert tony_sdk.commit_checkpoint(20, "model", "optimizer")  # again
    assert [save.step for save in complete(directory)] == [20]


def test_nothing_but_the_manifest_is_left(directory: Path) -> None:
    tony_sdk.commit_checkpoint(20, "model")
    assert sorted(path.name for path in directory.iterdir()) == ["model", "optimizer", "step-20.tony.json"]


def test_a_directory_that_is_reached_by_a_link(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "link").symlink_to("checkpoints")
    assert tony_sdk.commit_checkpoint(1, tmp_path / "link" / "model")
    monkeypatch.setenv(contract.ENV_CHECKPOINT_DIR, str(tmp_path / "link"))
    assert tony_sdk.commit_checkpoint(2, directory / "model")
    assert [save.entry for save in complete(directory)] == ["model", "model"]


@pytest.mark.parametrize(
    ("step", "paths", "what"),
    [
        (1, (), "paths of a checkpoint"),
        (-1, ("model",), "a step of at least 0"),
        (1, ("missing",), "missing is missing"),
        (1, ("model", "link"), "link is a link"),
        (1, ("linked",), "is a link"),
        (1, ("..",), "is not below"),
        (1, (".",), "is not below"),
        (1, ("model/..",), "is not below"),
        (1, ("../outside",), "is not below"),
        (1, ("/",), "is not below"),
        (1, ("empty",), "there are no files in empty"),
    ],
)
def test_mistakes_are_told(directory: Path, step: int, paths: tuple[str, ...], what: str) -> None:
    (directory.parent / "outside").touch()
    (directory / "link").symlink_to("optimizer")
    (directory / "linked").mkdir()
    (directory / "linked" / "x").symlink_to(".")
    (directory / "empty").mkdir()
    with pytest.raises(ValueError, match=what):
        tony_sdk.commit_checkpoint(step, *paths)
    assert complete(directory) == []


def test_a_manifest_that_cannot_be_written_does_not_stop_the_training(directory: Path) -> None:
    (directory / "step-3.tony.json").mkdir()
    assert tony_sdk.commit_checkpoint(3, "model") is False


@given(st.integers(0, 2**60), st.text(min_size=1, max_size=20))
def test_any_step_and_any_name(tmp_path_factory: pytest.TempPathFactory, step: int, name: str) -> None:
    directory = tmp_path_factory.mktemp("any")
    try:
        (directory / name).write_text("x")
        is_name = [path.name for path in directory.iterdir()] == [name]  # and not "x/", which is x
    except (OSError, ValueError):
        is_name = False
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(contract.ENV_CHECKPOINT_DIR, str(directory))
        if is_name:
            assert tony_sdk.commit_checkpoint(step, name)
            assert [(save.step, save.entry) for save in complete(directory)] == [(step, name)]


def test_they_need_the_standard_library_of_3_8_only(directory: Path) -> None:
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]); import tony_sdk;"
        "print(tony_sdk.commit_checkpoint(7, 'model'), tony_sdk.checkpoint_requested(), tony_sdk.resume_step())"
    )
    place = str(Path(tony_sdk.__file__).parent)
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program, place], capture_output=True, text=True, check=True
    )
    assert done.stdout == "True False 0\n"
