"""What is removed of an application that has ended, and what stays."""

from __future__ import annotations

import io
from pathlib import Path
from unittest import mock

import attrs
import pytest

from tests.runtime.am.descriptions import DESCRIPTION
from tony_provider.runtime import application
from tony_provider.runtime.common import contract
from tony_provider.runtime.common.codec import dump_json
from tony_provider.runtime.jobspec.model import OutputSpec
from tony_provider.runtime.storage import LocalStorage
from tony_provider.runtime.storage.stores import leftovers

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
    application.clean_up(LocalStorage(), f"file://{tmp_path}")
    left = [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()]
    assert sorted(left) == sorted(stays)
    application.clean_up(LocalStorage(), f"file://{tmp_path}")


def test_garbage_collection_finds_half_exports_anywhere(tmp_path: Path) -> None:
    for name in (f"jobs/one/step-7{MARK}", "jobs/one/step-7", f"jobs/one/step-x{MARK}"):
        (tmp_path / name).mkdir(parents=True)
    assert [each.name for each in leftovers(LocalStorage(), f"file://{tmp_path}")] == [f"step-7{MARK}"]


def test_what_a_job_writes_of_itself_does_not_choose_what_is_removed(tmp_path: Path) -> None:
    """Seen: with an output and an id of its own choice a job had files removed on the disk of an Airflow worker."""
    module = tmp_path / "package" / "__init__.py"
    module.parent.mkdir()
    module.write_text("ours")
    output = OutputSpec(path=f"file://{module.parent}/_init__")
    forged = attrs.evolve(DESCRIPTION, application_id="py", job=attrs.evolve(DESCRIPTION.job, outputs={"evil": output}))
    directory = tmp_path / "applications" / "application_1700000000000_0001"
    launch = directory / contract.LAUNCH_DIR
    launch.mkdir(parents=True)
    (launch / contract.APPLICATION_FILE).write_bytes(dump_json(forged))
    application.clean_up(LocalStorage(), directory.as_uri())
    assert module.read_text() == "ours"
    assert not launch.exists()


@pytest.mark.parametrize("scheme", ["file", "local", "asynclocal"])
def test_an_applications_outputs_on_hdfs_lead_to_no_file_of_this_machine(scheme: str, tmp_path: Path) -> None:
    """Seen: a driver knew this machine's disk by another word, too."""
    beside = tmp_path / "_model.application_1700000000000_0001"
    beside.mkdir()
    job = attrs.evolve(DESCRIPTION.job, outputs={"evil": OutputSpec(path=f"{scheme}://{tmp_path}/model")})
    told = dump_json(attrs.evolve(DESCRIPTION, job=job))
    hdfs = mock.Mock(object_store_variables={}, open_read=lambda *_, **__: io.BytesIO(told))
    application.clear_outputs(hdfs, "hdfs:///tony/applications/application_1700000000000_0001")
    assert beside.exists()
