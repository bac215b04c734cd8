"""A job on a cluster with Kerberos, whose RPC is encrypted."""

from __future__ import annotations

from tests.jobs.left import assert_nothing_left
from tests.jobs.places import USER, YarnPlace
from tony_provider.cluster.interface import ApplicationState
from tony_provider.runtime.protocol.status import JobState

TRAIN = "test $TONY_RANK != 0 || echo weights > $TONY_MODEL_DIR/model.txt; echo trained"


def test_a_job_with_delegation_tokens(secure: YarnPlace) -> None:
    # Each more than half of a node: the nodes' own tokens are needed on both.
    job = secure.run({"tasks": {"worker": {"instances": 2, "memory": "2200MiB", "command": TRAIN}}})

    status = job.succeeded()
    assert len({task.node for task in status.tasks}) == 2
    assert job.read("model/model.txt") == "weights\n"
    assert "trained" in job.log("worker:1")
    report = secure.report(job.id)
    assert (report["user"], report["state"], report["finalStatus"]) == (USER, "FINISHED", "SUCCEEDED")
    owners = {entry.owner for entry in job.hook.storage().list(job.directory)}
    assert owners == {USER}
    assert_nothing_left(secure, job)


def test_a_job_is_killed(secure: YarnPlace) -> None:
    job = secure.submit({"tasks": {"worker": {"memory": "128MiB", "command": "sleep 1000"}}})
    job.until(JobState.RUNNING)

    job.hook.kill(job.id, "enough")

    application = job.end()
    assert application.state is ApplicationState.KILLED
    assert "enough" in application.diagnostics
    job.handle.clean_up()
    assert_nothing_left(secure, job)
