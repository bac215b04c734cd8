"""What applications leave on a real store of this machine, and what of it cannot be read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.operators.statuses import status
from tony_provider.cluster.errors import RecordUnreadable
from tony_provider.cluster.training.results import Delivered, delivered, is_of_result, job_status, mark_delivered
from tony_provider.runtime.common.codec import dump_json
from tony_provider.runtime.storage.local import LocalStorage

STORAGE = LocalStorage()


def written(tmp_path: Path, name: str, **changes: Any) -> str:
    """The directory of an application that has left a status with these changes under that name."""
    plain = json.loads(dump_json(status("RUNNING")))
    (tmp_path / name).write_text(json.dumps({**plain, **changes}))
    return f"file://{tmp_path}"


def test_a_status_of_a_newer_runtime_is_read_for_what_is_known(tmp_path: Path) -> None:
    assert job_status(STORAGE, written(tmp_path, "status.json", mood="cheerful")) == status("RUNNING")


@pytest.mark.parametrize(("name", "result"), [("status.json", False), ("result.json", True)])
def test_a_state_that_only_a_newer_runtime_knows_is_told_with_the_file(tmp_path: Path, name: str, result: bool) -> None:
    directory = written(tmp_path, name, state="PAUSED")
    with pytest.raises(RecordUnreadable, match=f"{directory}/{name}: .*PAUSED.* update tony-provider") as told:
        job_status(STORAGE, directory)
    assert told.value.permanent
    assert is_of_result(told.value) is result


def test_a_mark_that_cannot_be_read(tmp_path: Path) -> None:
    directory = f"file://{tmp_path}"
    mark = Delivered(1, 3)
    mark_delivered(STORAGE, directory, mark)
    assert delivered(STORAGE, directory) == mark
    (tmp_path / "delivered.json").write_text("yes")
    with pytest.raises(RecordUnreadable, match=r"delivered\.json: .* remove the file: then a success counts as"):
        delivered(STORAGE, directory)
