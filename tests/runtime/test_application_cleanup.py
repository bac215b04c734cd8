"""What is removed of an application that has ended, and what stays."""

from __future__ import annotations

from pathlib import Path

from tony_provider.runtime import application_cleanup
from tony_provider.runtime.storage import LocalStorage
from tony_provider.runtime.storage.leftovers import leftovers

MARK = ".tmp-0a1b2c3d"


def test_half_models_and_exports_go_and_what_programs_have_left_stays(tmp_path: Path) -> None:
    stays = [
        "result.json",
        f"model/model{MARK}/weights",
        f"exports/step-120/model{MARK}/weights",
        f"exports/step-120/step-1{MARK}/weights",
        f"exports/step-120{MARK}x/weights",
    ]
    goes = [f"model{MARK}/weights", f"exports/step-121{MARK}/weights", "launch/job.json", "exports/.tony-tmp-1"]
    for name in (*stays, *goes):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("some")
    application_cleanup.clean_up(LocalStorage(), f"file://{tmp_path}")
    left = [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()]
    assert sorted(left) == sorted(stays)
    application_cleanup.clean_up(LocalStorage(), f"file://{tmp_path}")


def test_garbage_collection_finds_half_exports_anywhere(tmp_path: Path) -> None:
    for name in (f"jobs/one/step-7{MARK}", "jobs/one/step-7", f"jobs/one/step-x{MARK}"):
        (tmp_path / name).mkdir(parents=True)
    assert [each.name for each in leftovers(LocalStorage(), f"file://{tmp_path}")] == [f"step-7{MARK}"]
