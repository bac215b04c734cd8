"""The ways to name a job, which are the same in all commands. The jobs are real, on the local cluster."""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import Tony
from tests.hooks.jobs import ended, job, running
from tony_provider.cluster.submission.preparation import SubmissionRequest
from tony_provider.hooks.job import TonyJob
from tony_provider.hooks.tony import TonyHook

MONDAY, TUESDAY = "scheduled__2026-01-05T00:00:00+00:00", "scheduled__2026-01-06T00:00:00+00:00"
TASK = ("--dag-id", "clicks", "--task-id", "train")


def submitted(
    hook: TonyHook, run_id: str, *, command: str = "true", key: str | None = None, index: int = -1, number: int = 1
) -> TonyJob:
    """A job as an operator submits it for the task ``train`` of ``clicks``."""
    which = {"dag_id": "clicks", "run_id": run_id, "task_id": "train"}
    labels = {**which, "try_number": str(number)}
    labels |= {"map_index": str(index)} if index >= 0 else {}
    labels |= {"checkpoint_key": key} if key else {}
    identity = hook.identity(**which, map_index=index, checkpoint_key=key)
    return hook.submit(SubmissionRequest(job(command), identity, labels=labels))


def finished(hook: TonyHook, *jobs: TonyJob) -> list[TonyJob]:
    for each in jobs:
        ended(hook, each.application_id)
    return list(jobs)


def named(tony: Tony, *name: str) -> str:
    """The application that ``status`` shows, or its error."""
    said = tony("status", *name, "--output", "json")
    return str(json.loads(said.out)[0]["application_id"]) if said.code == 0 else said.error


def test_a_job_of_a_task_is_named_by_its_ids_and_by_default_the_newest(tony: Tony, local: TonyHook) -> None:
    first, second = finished(local, submitted(local, TUESDAY), submitted(local, MONDAY))
    assert named(tony, *TASK) == second.application_id  # it was submitted last, though for an earlier date
    assert named(tony, *TASK, "--run-id", TUESDAY) == first.application_id
    assert named(tony, "--tag", first.training.tag) == named(tony, first.application_id) == first.application_id
    for option, number in (("--try", "1"), ("--map-index", "0")):
        assert "--map-index and --try need both" in named(tony, "--tag", first.training.tag, option, number)
        assert "--map-index and --try need both" in tony("renew", option, number).error
    (again,) = finished(local, submitted(local, TUESDAY, number=2))
    assert named(tony, *TASK) == named(tony, *TASK, "--try", "2") == again.application_id
    assert named(tony, *TASK, "--run-id", TUESDAY, "--try", "1") == first.application_id
    missing = named(tony, *TASK, "--try", "3")
    assert "the task train of the DAG clicks in file://" in missing
    assert "no such job; known jobs of this task: " in missing
    assert f"{again} (run {TUESDAY}, try 2), {second} (run {MONDAY}, try 1)" in missing


def test_what_names_no_job_or_several_lists_the_candidates(tony: Tony, local: TonyHook) -> None:
    jobs = [submitted(local, MONDAY, index=0), submitted(local, MONDAY, index=1, key="fr")]
    one, other = (each.application_id for each in finished(local, *jobs))
    several = named(tony, *TASK)
    assert (
        f"name one of the jobs {other} (run {MONDAY}, map index 1, try 1), {one} (run {MONDAY}, map index 0, try 1)"
        in several
    )
    assert named(tony, *TASK, "--map-index", "0") == one
    assert named(tony, *TASK, "--map-index", "1") == named(tony, *TASK, "--run-id", MONDAY, "--map-index", "1") == other
    for unknown in (("--map-index", "7"), ("--run-id", TUESDAY)):
        assert f"no such job; known jobs of this task: {other}" in named(tony, *TASK, *unknown)
    missing = named(tony, "--dag-id", "clicks", "--task-id", "fit")
    assert "no such job; known jobs of this task: none" in missing


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ((), "name a job: by its application ID, --tag, or --dag-id and --task-id"),
        (("application_1_0001", *TASK), "neither the cluster nor"),
        (("--dag-id", "clicks"), "name the job of a task by both --dag-id and --task-id"),
        (("--run-id", MONDAY), "name the job of a task by both --dag-id and --task-id"),
    ],
)
def test_an_incomplete_name_says_what_to_add(tony: Tony, local: TonyHook, name: tuple[str, ...], problem: str) -> None:
    assert problem in named(tony, *name)


def test_forged_labels_do_not_make_a_job_that_of_another_task(tony: Tony, local: TonyHook) -> None:
    """The slugs of these tasks are equal, and the job claims to belong to the other one."""
    labels = {"dag_id": "clicks", "run_id": MONDAY, "task_id": "train"}
    theirs = local.identity(dag_id="clicks-train", run_id=MONDAY, task_id="")
    finished(local, local.submit(SubmissionRequest(job("true"), theirs, labels=labels)))
    assert "known jobs of this task: none" in named(tony, *TASK)


def test_every_command_takes_every_name(tony: Tony, local: TonyHook) -> None:
    mine = submitted(local, MONDAY, command="sleep 600")
    running(local, mine.training, mine.application_id)
    names = (mine.application_id,), ("--tag", mine.training.tag), TASK
    for name in names:
        assert tony("logs", *name, "--task", "am").code == 0
        assert "tasks.worker: cannot be resized" in tony("resize", *name, "worker=2").error
        assert "continues; it was not suspended" in tony("resume", *name).out
        assert "has no checkpoint in the storage" in tony("checkpoint", *name, "/tmp/never-made").error
        assert "has no task ps:0; its tasks are worker:0" in tony("tunnel", *name, "ps:0").error
        assert "has no HDFS token" in tony("renew", *name).out
    assert tony("kill", *TASK, "--grace", "0s").out == f"{mine} has ended\n"
    for name in names:
        assert tony("kill", *name).out == f"{mine} has already ended\n"
        assert tony("advise", *name, "--patch").code == 0
    both = tony("kill", mine.application_id, *TASK)
    assert (both.code, "name one job: by its application ID" in both.error) == (1, True)


def test_a_tag_of_several_running_jobs_names_none(tony: Tony, local: TonyHook) -> None:
    """A tag that a job sets, as for all trainings of a team."""
    found = []
    for run_id in (MONDAY, TUESDAY):
        identity = local.identity(dag_id="clicks", run_id=run_id, task_id="train")
        found.append(local.submit(SubmissionRequest(job("sleep 600", tags=["team-a"]), identity)))
    said = tony("kill", "--tag", "team-a")
    assert said.code == 1
    assert "name one of the running jobs with the tag team-a: " in said.error
    assert all(each.application_id in said.error for each in found)
    found[0].kill("seen")
    ended(local, found[0].application_id)
    assert tony("kill", "--tag", "team-a", "--grace", "0s").out == f"{found[1]} has ended\n"
