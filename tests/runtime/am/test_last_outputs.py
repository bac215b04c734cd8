from __future__ import annotations

from pathlib import Path

from tony_provider.runtime.am.gateway import LastOutputs
from tony_provider.runtime.protocol.task_identity import TaskIdentity
from tony_provider.runtime.storage import LocalStorage


def identity(attempt: int) -> TaskIdentity:
    return TaskIdentity("application_1_0001", f"container_1_0001_01_00000{attempt}", "worker:0", attempt)


async def test_the_output_of_a_killed_container_is_kept_and_never_in_place_of_all_of_it(tmp_path: Path) -> None:
    outputs = LastOutputs(LocalStorage(), str(tmp_path))
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "worker-0.log").write_text("all of it\n")
    outputs.keep(identity(1), b"of it\n")
    outputs.keep(identity(2), b"the end\n")
    await outputs.close()
    assert {path.name: path.read_text() for path in logs.iterdir()} == {
        "worker-0.log": "all of it\n",
        "worker-0.attempt-2.log": "the end\n",
    }
