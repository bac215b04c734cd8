from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tony_provider.runtime.artifacts import manifest
from tony_provider.runtime.checkpoint import stored_checkpoint
from tony_provider.runtime.checkpoint.save_view import is_best, is_temporary, labelled_step, names_a_checkpoint, step_in


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("ckpt-20", 20),
        ("model.ckpt-100", 100),
        ("cp-0005.ckpt", 5),
        ("epoch=3-step=120", 120),
        ("step=120-epoch=3", 120),
        ("epoch_7-loss_0.25", 7),
        ("weights.05-0.12", 5),
        ("weights.01-10.53", 1),
        ("model_step500_acc0.9", 500),
        ("global_step10", 10),
        ("checkpoint_00000006", 6),
        ("iter_0000100", 100),
        ("epoch5", 5),
        ("500", 500),
        ("step-120-rank0", 120),
        ("ckpt-20-rank1", 20),
        ("Step_7", 7),
        ("model-20", 20),
        ("v2-ckpt-10", 10),
        ("resnet50", None),
        ("mnist_conv2d", None),
        ("last-v1", None),
        ("best", None),
        ("checkpoint-" + "9" * 30, None),
        ("", None),
    ],
)
def test_the_step_in_a_name(name: str, step: int | None) -> None:
    assert step_in(name) == step


@given(st.text(max_size=40))
def test_any_name_has_a_step_or_none(name: str) -> None:
    assert (step_in(name) or 0) >= 0
    assert step_in(name) == labelled_step(name) or labelled_step(name) is None
    assert names_a_checkpoint(name) in (True, False)


@given(st.integers(0, 10**12))
def test_numbers_with_the_usual_labels(step: int) -> None:
    for name in (f"step-{step}", f"step_{step:08d}", f"epoch=1-step={step}", f"global_step{step}"):
        assert labelled_step(name) == step
    for name in (f"ckpt-{step}", f"{step}", f"checkpoint_{step}"):
        assert step_in(name) == step
        assert names_a_checkpoint(name)


@pytest.mark.parametrize("name", ["run3", "version_0", "resnet50", "model.d", "epoch"])
def test_directories_that_may_hold_several(name: str) -> None:
    assert not names_a_checkpoint(name)


@pytest.mark.parametrize(
    "name", [".tmp-x", "tmp-checkpoint-5", "x.tmp", "ckpt-7_temp", "workertemp_1", "x.part", "x.tmp12", "a.incomplete"]
)
def test_what_is_not_meant_to_stay(name: str) -> None:
    assert is_temporary(name)


@pytest.mark.parametrize("name", ["template.pt", "temperature-5.keras", "ckpt-5", ".metadata", "attempt", "part-1.pt"])
def test_what_is(name: str) -> None:
    assert not is_temporary(name)


@pytest.mark.parametrize(
    ("name", "best"), [("model_best.pth.tar", True), ("best", True), ("Best-3.keras", True), ("bestow.pt", False)]
)
def test_names_of_saves_that_are_kept_for_their_quality(name: str, *, best: bool) -> None:
    assert is_best(name) is best


@given(st.integers(0, 10**15))
def test_the_name_of_a_stored_checkpoint_has_its_save_number(save: int) -> None:
    assert stored_checkpoint.save_of(stored_checkpoint.directory_name(save)) == save
    assert stored_checkpoint.directory_name(save) != stored_checkpoint.directory_name(save)


def test_names_of_stored_checkpoints_sort_by_their_save_numbers() -> None:
    names = [stored_checkpoint.directory_name(save) for save in (2, 10, 100, 10**5)]
    assert sorted(names) == names


@pytest.mark.parametrize(
    "name",
    [
        "save-1-0000aaaa",
        "save-000001",
        "save-000001-",
        "save-000001-aa",
        "save-000001-0000AAAA",
        "save-000001-0000aaaa.2",
        "save-000001-step-5-0000aaaa",
        "x-000001-0000aaaa",
        "user",
    ],
)
def test_names_of_other_directories_have_no_save_number(name: str) -> None:
    assert stored_checkpoint.save_of(name) is None


@pytest.mark.parametrize("path", ["", "/", "a/", "/a", "a//b", "../a", "a/..", "./a", "a\0"])
def test_paths_that_lead_out_of_the_directory(path: str) -> None:
    assert not manifest.is_inside(path)
    assert manifest.is_inside("a/b.c/...")
