"""``airflow tony resize``."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Tony
from tests.cli.test_suspend import reached
from tests.hooks.jobs import SECONDS, ended, identity, job, running
from tests.waiting import until
from tony_provider.cluster.submission.preparation import SubmissionRequest
from tony_provider.hooks.job import NotResizable
from tony_provider.hooks.tony import TonyHook

COMMAND = "trap 'exit 143' TERM; echo $TONY_RANK of $TONY_WORLD_SIZE; sleep 600 & wait"


@pytest.mark.long
def test_a_job_is_resized_from_the_command_line(tony: Tony, local: TonyHook) -> None:
    """By a program that is a shell script, and never saves."""
    which = identity(local, "resize")
    counts = {"instances": 1, "max_instances": 3}
    submitted = SubmissionRequest(job(COMMAND, counts, framework="generic", timeouts={"grace": "2s"}), which)
    application_id = local.submit(submitted).application_id
    running(local, which, application_id)

    asked = tony("resize", application_id, "worker=2", "--reason", "there is room")

    assert asked.code == 0, asked.error
    assert asked.out == f"{application_id} requests 1 container, and then continues with 2 workers\n"

    def tasks() -> bool:
        status = local.job_status(which, application_id)
        return status is not None and len(status.tasks) == 2 and status.resizing == {"worker": 2}

    until(tasks, f"{application_id} grows", SECONDS)
    again = tony("resize", application_id, "worker=2")
    assert (again.code, again.out) == (
        0,
        f"{application_id} already has 2 workers, or is being resized to this number\n",
    )
    back = tony("resize", application_id, "worker=1")
    assert (back.code, back.out) == (0, f"{application_id} saves a checkpoint, and continues with 1 worker\n")
    for wrong, why in (
        ("worker=4", "tasks.worker: 4 is not between 1 and 3, the job's instances and max_instances"),
        ("ps=2", "tasks.ps: the job has no such task type; it has worker"),
        ("worker", "'worker' should be a task type and its number of tasks, such as worker=4"),
        ("worker=-1", "'worker=-1' should be a task type"),
    ):
        refused = tony("resize", application_id, wrong)
        assert (refused.code, why in refused.error) == (1, True), refused.error

    tony("suspend", application_id)
    reached(local, which, application_id, "SUSPENDED")
    later = tony("resize", application_id, "worker=3")
    assert (later.code, later.out) == (
        0,
        f"{application_id} is suspended, and will have 3 workers when it is resumed\n",
    )

    local.kill(application_id, "seen")
    ended(local, application_id)
    over = tony("resize", application_id, "worker=2")
    assert (over.code, "has already ended" in over.error) == (1, True)


def test_more_than_could_ever_be_had_is_refused_before_anything_is_asked(local: TonyHook) -> None:
    which = identity(local, "resize-too-far")
    large = job("exec sleep 600", {"max_instances": 9000}, framework="generic")
    application_id = local.submit(SubmissionRequest(large, which)).application_id
    running(local, which, application_id)
    with pytest.raises(NotResizable, match="worker=9000 is not possible on this cluster: memory: tasks that run"):
        local.job(application_id).resize({"worker": 9000}, "why not")
    status = local.job_status(which, application_id)
    assert status is not None
    assert status.resizing == {}
    local.kill(application_id, "seen")
    ended(local, application_id)
