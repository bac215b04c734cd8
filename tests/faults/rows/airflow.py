"""What happens to Airflow's side: a retry is a resume, and a clear is what it should be."""

from __future__ import annotations

import shutil
import signal
from typing import Any

from tests.faults.account import Account
from tests.faults.field import Field
from tests.faults.row import COUNT, row
from tests.faults.rows.process import HIT_AT
from tests.faults.tries import Tries
from tests.faults.weights import PROGRAMS
from tests.waiting import until

ONCE: dict[str, Any] = {"restart": {"budget": 0}}  # the first failure is the job's
MORE_MEMORY = "192MiB"


@row("airflow-task-killed", "Airflow task process kill -9", COUNT)
def task_killed(field: Field) -> Account:
    """The application goes on without it, and the next try attaches to it."""
    tries = Tries(field)
    first = tries.begin(tries.job(pace=0.5))
    training = tries.training()
    training.until_step(HIT_AT)
    with training.hit():
        first.kill()
    told = tries.begin(tries.job(pace=0.5)).result()
    account = training.finish()
    account.expect(told["state"] == "success", f"the second try: {told['error']}")
    account.expect((told["result"] or {}).get("application_id") == training.job.id, f"it returned {told['result']}")
    return account


@row("airflow-retry", "the application fails, Airflow retries", COUNT)
def retry(field: Field) -> Account:
    """A new application goes on from the newest checkpoint of the failed one."""
    tries = Tries(field)
    attempt = tries.begin(tries.job(**ONCE), retries=1)
    tries.training().until_step(HIT_AT)
    ordered = _fail(tries)
    told = attempt.result()
    training = tries.training()
    training.hits.append(ordered)
    account = training.finish(former=tries.applications()[:-1])
    account.expect(told["state"] == "success", f"the task: {told['error']}")
    account.expect(training.resumed_steps() == [20], f"it went on from {training.resumed_steps()}")
    account.expect("step 20" in attempt.said(), "the task's log does not say from which step")
    return account


@row("clear-after-success", "cleared after success, then rank 1's container lost", COUNT)
def cleared_after_success(field: Field) -> Account:
    """A new chain begins at step 0, and goes on from its own checkpoints, not from the old one's last."""
    tries = Tries(field)
    told = tries.begin(tries.job()).result()
    assert told["state"] == "success", told["error"]
    before = tries.applications()
    again = tries.begin(tries.job())
    until(lambda: len(tries.applications()) > len(before), "a second application", 120)
    training = tries.training()
    training.until_committed(20)
    with training.hit():
        training.executor("worker:1").signal(signal.SIGKILL)
    told = again.result()
    account = training.finish(replaced=["worker:1"], former=before)
    steps = training.resumed_steps()
    account.expect(len(steps) == 2 and steps[0] == 0 and 20 <= steps[1] < 60, f"it began, and went on, at {steps}")
    account.expect(told["state"] == "success", f"the task: {told['error']}")
    return account


@row("clear-changed-code", "cleared after failure, with changed code", COUNT)
def cleared_with_changed_code(field: Field) -> Account:
    """Old weights are not for new code: a new chain, from step 0, and the log says why."""
    tries = Tries(field)
    changed = field.folder / "count.py"
    changed.write_text((PROGRAMS / "count.py").read_text() + "\n# changed\n")
    unchanged = [name for name in tries.job()["files"] if not name.endswith("/count.py")]
    account = _failed_and_cleared(tries, tries.job(files=[str(changed), *unchanged]), resumes_at=0)
    account.expect("count.py" in tries.begun[-1].said(), "the log does not say what changed")
    return account


@row("clear-more-memory", "cleared after failure, with more memory only", COUNT)
def cleared_with_more_memory(field: Field) -> Account:
    """What a training is given is no part of what it is: it goes on."""
    tries = Tries(field)
    return _failed_and_cleared(tries, tries.job(memory=MORE_MEMORY), resumes_at=20)


@row("not-delivered", "Airflow task process kill -9 before the result is delivered", COUNT)
def not_delivered(field: Field) -> Account:
    """The application ends well while nobody waits: the next try returns its result, and trains nothing."""
    tries = Tries(field)
    first = tries.begin(tries.job())
    training = tries.training()
    training.until_step(HIT_AT)
    with training.hit():
        first.kill()
    training.job.end()
    return _result_of(tries)


@row("forgotten", "the ResourceManager has forgotten the finished application", COUNT)
def forgotten(field: Field) -> Account:
    """Both ResourceManagers lose their memory before the result is delivered: it is in the job's directory."""
    tries = Tries(field)
    first = tries.begin(tries.job())
    training = tries.training()
    training.until_step(HIT_AT)
    with training.hit():
        first.kill()
    training.job.end()
    for number in (1, 2):
        field.hadoop.kill(f"resourcemanager-{number}")
    shutil.rmtree(field.hadoop.layout.data / "rm-state")
    field.mend_daemons()
    assert training.job.hook.application(training.job.id) is None, "it was not forgotten"
    return _result_of(tries)


def _result_of(tries: Tries) -> Account:
    """The next try returns what the one application left."""
    told = tries.begin(tries.job()).result()
    training = tries.training()
    account = training.finish()
    account.expect(told["state"] == "success", f"the next try: {told['error']}")
    result = told["result"] or {}
    account.expect(result.get("application_id") == training.job.id, f"it returned {result}")
    account.expect(result.get("step") == 60, f"it returned step {result.get('step')}")
    return account


def _fail(tries: Tries) -> float:
    """Have the job end because of rank 1; when that was."""
    tries.diary.order("worker:1", "exit", "3")
    return tries.diary.until_obeyed("worker:1").at


def _failed_and_cleared(tries: Tries, again: dict[str, Any], resumes_at: int) -> Account:
    """A job that failed after step 25, and what became of the same run with another job."""
    first = tries.begin(tries.job(**ONCE))
    tries.training().until_step(HIT_AT)
    ordered = _fail(tries)
    told = first.result()
    assert told["state"] == "failed", told
    former = tries.applications()
    told = tries.begin(again).result()
    training = tries.training()
    training.hits.append(ordered)
    account = training.finish(former=former)
    account.expect(told["state"] == "success", f"the task: {told['error']}")
    account.expect(training.resumed_steps() == [resumes_at], f"it began at {training.resumed_steps()}")
    return account
