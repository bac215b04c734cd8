"""Outputs of a job on its store: what is at their paths when it has ended, and what is not."""

from __future__ import annotations

import json
import os
import signal
import uuid
from pathlib import Path
from typing import Any

import pytest

from tests.jobs.job import Job
from tests.jobs.left import assert_nothing_left
from tests.jobs.places import LocalPlace, Place
from tests.waiting import until
from tony_provider.cluster.errors import JobRejected
from tony_provider.cluster.submission.preparation import SubmissionRequest
from tony_provider.runtime.parsing.parse import parse_job
from tony_provider.runtime.storage import uris, walk
from tony_provider.runtime.storage.base import read_text

WRITE = 'cd "$TONY_OUTPUT_PREDICTIONS" && echo $TONY_RANK > a && mkdir b && echo 2 > b/c'


def worker(command: str, **more: Any) -> dict[str, Any]:
    return {"instances": 2, "memory": "128MiB", "command": command, **more}


@pytest.fixture
def target(place: Place) -> str:
    """The URI of a path on the store where nothing is."""
    return uris.join(uris.parent(place.hook().layout.root), f"data-{uuid.uuid4().hex}", "predictions")


def written(place: Place, target: str) -> dict[str, str]:
    """Each file at the target, but for the mark; and nothing beside it."""
    storage = place.hook().storage()
    assert [each.name for each in storage.list(uris.parent(target))] == [uris.name(target)]
    files = [each.path for each in walk(storage, target) if not each.is_directory]
    return {path[len(target) + 1 :]: read_text(storage, path) for path in files if not path.endswith("/_SUCCESS")}


def test_what_tasks_leave_appears_with_the_success_of_the_job(place: Place, target: str) -> None:
    job = place.submit({"tasks": {"worker": worker(WRITE)}, "outputs": {"predictions": target}})
    status = job.succeeded()
    assert written(place, target) == {
        "worker-0/a": "0\n",
        "worker-0/b/c": "2\n",
        "worker-1/a": "1\n",
        "worker-1/b/c": "2\n",
    }
    mark = json.loads(read_text(place.hook().storage(), f"{target}/_SUCCESS"))
    assert (mark["application_id"], mark["training"], mark["files"], mark["bytes"]) == (job.id, job.identity.name, 4, 8)
    assert [(each.name, each.uri, each.files, each.bytes) for each in status.outputs] == [("predictions", target, 4, 8)]
    assert_nothing_left(place, job)


@pytest.fixture
def here(local: LocalPlace, tmp_path: Path) -> Path:
    """A path on this machine where nothing is."""
    return tmp_path / "data" / "predictions"


def files(directory: Path) -> dict[str, str]:
    found = (path for path in directory.rglob("*") if path.is_file() and not path.name.startswith("_"))
    return {path.relative_to(directory).as_posix(): path.read_text() for path in found}


def beside(path: Path) -> list[str]:
    return sorted(each.name for each in path.parent.iterdir()) if path.parent.exists() else []


def test_a_job_that_fails_leaves_nothing_and_what_was_given_up_is_not_there(local: LocalPlace, here: Path) -> None:
    fails = '{ echo x > "$TONY_OUTPUT_PREDICTIONS/f"; [ "$TONY_TASK_INDEX" = 0 ] || exit 3; }'
    spec = {"outputs": {"predictions": str(here)}, "restart": {"budget": 0}, "tasks": {"worker": worker(fails)}}
    local.submit(spec).failed()
    assert beside(here) == []
    local.submit({**spec, "tolerated_failures": 1}).succeeded()
    assert files(here) == {"worker-0/f": "x\n"}
    assert beside(here) == ["predictions"]


def test_of_two_outputs_none_is_published_where_one_cannot_be(local: LocalPlace, here: Path) -> None:
    outputs = {"first": str(here), "second": {"path": str(here.with_name("second")), "layout": "flat"}}
    command = 'touch "$TONY_OUTPUT_FIRST/x" "$TONY_OUTPUT_SECOND/x"'
    job = local.submit({"outputs": outputs, "tasks": {"worker": worker(command)}})
    assert "outputs.second: worker-0.1.1 and worker-1.1.1 have both written x; " in job.failed()
    assert beside(here) == []


def test_an_output_without_a_file_is_warned_of(local: LocalPlace, here: Path) -> None:
    status = local.run({"outputs": {"predictions": str(here)}, "tasks": {"worker": worker("true")}}).succeeded()
    assert status.warnings == ["output predictions: no task has written a file to its directory (tony_sdk.output)"]
    assert [path.name for path in here.iterdir()] == ["_SUCCESS"]


def test_a_gang_that_starts_again_leaves_what_its_last_start_left(local: LocalPlace, here: Path) -> None:
    program = """cd "$TONY_OUTPUT_PREDICTIONS"; echo $TONY_GENERATION > gen-$TONY_GENERATION
    if [ $TONY_TASK_TYPE$TONY_TASK_INDEX$TONY_GENERATION = worker11 ]; then
        while [ ! -e MARK ]; do sleep 0.1; done
        exit 1
    fi
    touch MARK"""
    program = program.replace("MARK", f"{here.parent.parent}/mark")
    spec = {"framework": "generic", "outputs": {"predictions": {"path": str(here), "layout": "flat"}}}
    tasks = {
        "worker": worker(program),
        "chief": {"memory": "128MiB", "command": 'touch "$TONY_OUTPUT_PREDICTIONS/chief"'},
    }
    job = local.submit({**spec, "restart": {"backoff": 0}, "tasks": tasks})
    assert "worker-0.1.2 and worker-1.1.2 have both written gen-2; " in job.failed()
    assert beside(here) == []


def test_each_part_appears_when_its_task_has_succeeded(local: LocalPlace, here: Path) -> None:
    go = here.parent.parent / "go"
    waits = f"while [ ! -e {go} ]; do sleep 0.1; done"
    program = f'echo $TONY_RANK > "$TONY_OUTPUT_PREDICTIONS/f"; [ $TONY_RANK = 0 ] || {waits}'
    outputs = {"predictions": {"path": str(here), "commit": "task"}}
    job = local.submit({"outputs": outputs, "tasks": {"worker": worker(program)}})
    until(lambda: files(here) == {"worker-0/f": "0\n"}, "the part of the first is there")
    assert not (here / "_SUCCESS").exists()
    go.touch()
    job.succeeded()
    assert files(here) == {"worker-0/f": "0\n", "worker-1/f": "1\n"}
    assert sorted(path.name for path in here.iterdir()) == ["_SUCCESS", "worker-0", "worker-1"]
    assert beside(here) == ["predictions"]


def test_a_training_replaces_its_own_and_nothing_else(local: LocalPlace, here: Path) -> None:
    hook = local.hook()
    identity = hook.identity(dag_id="jobs", run_id="same", task_id="train")
    for content in ("first", "second"):
        command = f'echo {content} > "$TONY_OUTPUT_PREDICTIONS/{content}"'
        spec = {"framework": "standalone", "outputs": {"predictions": str(here)}, "tasks": {"worker": worker(command)}}
        request = SubmissionRequest(parse_job(spec), identity)
        job = Job(hook, identity, hook.submit(request).application_id, local.log_folders)
        job.succeeded()
        assert files(here) == {f"worker-{index}/{content}": f"{content}\n" for index in range(2)}
    with pytest.raises(JobRejected, match=r"outputs\.predictions\.path: .*: .* of another training wrote it; "):
        local.submit(spec)


def test_whoever_finds_the_application_ended_removes_what_its_master_could_not(local: LocalPlace, here: Path) -> None:
    """And what was at the path before goes back."""
    job = local.submit({"outputs": {"predictions": str(here)}, "tasks": {"worker": worker("exec sleep 1000")}})
    staging = here.parent / f"_{here.name}.{job.id}"
    until(lambda: job.hook.job_status(job.identity, job.id) and staging.exists(), "it is looked for the output")
    os.kill(job.master().pid, signal.SIGKILL)
    job.end()
    former = staging.with_name(f"{staging.name}.old")
    former.mkdir()
    (former / "precious").write_text("1")
    job.handle.clean_up()
    assert beside(here) == ["predictions"]
    assert files(here) == {"precious": "1"}
    job.handle.clean_up()


def test_an_output_in_the_staging_directory_is_refused(local: LocalPlace) -> None:
    with pytest.raises(JobRejected, match=r"outputs\.predictions\.path: .* staging directory; use another path"):
        local.submit({"outputs": {"predictions": str(local.root / "jobs" / "x")}, "tasks": {"worker": worker("true")}})
