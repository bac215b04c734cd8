"""Tries of one task in a real Airflow: what a retry, a cleared task and a try after a dead worker do."""

from __future__ import annotations

import os
import shutil
import signal
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import TaskDeferred
from airflow.utils.state import TaskInstanceState

from tests.jobs.processes import processes_of
from tests.operators import dying
from tests.operators.jobs import DEADLINE, Marker, ended, job
from tests.operators.trainings import ONCE, Telling, Training
from tests.waiting import until
from tony_provider.cluster.errors import ClusterUnreachable
from tony_provider.cluster.interface import ApplicationState
from tony_provider.exceptions import TonyJobFailed, TonyJobRejected, TonySpecError
from tony_provider.runtime.checkpoint.stored_checkpoint import OWNERS_DIR, owner_file
from tony_provider.runtime.common.codec import to_plain
from tony_provider.runtime.protocol.status import FinalStatus
from tony_provider.runtime.storage import uris
from tony_provider.runtime.storage.base import read_bytes, write_atomically
from tony_provider.triggers.tony import WatchEvent
from tony_provider.watching.termination import killed_for


def test_a_retry_goes_on_in_the_chain_from_its_newest_checkpoint(training_anywhere: Training) -> None:
    training = training_anywhere

    def between() -> None:
        training.save(7)
        training.mended.touch()

    done = training.retried(between)
    assert done.state == "success"
    assert training.chains == ["chain-0001"]
    assert len(training.applications) == 2
    result = done.results["train"]
    assert result["checkpoint_chain"] == training.newest.uri
    assert training.description(done).chain_dir == training.newest.uri
    assert training.said(r"application_\S+ opens a new checkpoint chain .* trains from the beginning")
    assert training.said(r"The previous application: application_\S+ FAILED")
    assert training.said(
        r"application_\S+ continues \S+/chain-0001 .* from snapshot \d+ \(step 7\b[^)]*\) in \S+/chain-0001"
    )


@pytest.mark.long
def test_a_signal_between_two_tries_of_one_process_says_nothing_of_the_second(training: Training) -> None:
    """``airflow dags test`` has both tries in one process, and Airflow's handler of the first stays."""

    def between() -> None:
        assert callable(signal.getsignal(signal.SIGTERM)), "Airflow's, which calls on_kill"
        os.kill(os.getpid(), signal.SIGTERM)
        training.mended.touch()

    assert training.retried(between).state == "success"
    assert len(training.applications) == 2


@pytest.mark.parametrize("deferrable", [False, pytest.param(True, marks=pytest.mark.long)])
def test_a_task_that_is_cleared_after_a_success_trains_anew(training: Training, deferrable: bool) -> None:
    training.mended.touch()
    first = training.again(deferrable=deferrable).results["train"]
    training.save(9)
    second = training.again(deferrable=deferrable).results["train"]
    assert second["application_id"] != first["application_id"]
    assert (first["checkpoint_chain"][-10:], second["checkpoint_chain"][-10:]) == ("chain-0001", "chain-0002")
    assert training.said(
        "opens a new checkpoint chain .chain-0001 has already led to a success. and trains from the beginning"
    )


@pytest.mark.long
def test_a_task_that_is_cleared_after_a_failure_goes_on_with_more_memory(training: Training) -> None:
    spec = training.spec()
    training.again(spec)
    training.save(7)
    training.mended.touch()
    spec["tasks"]["worker"]["memory"] = "300MiB"
    done = training.again(spec, yarn_queue="other", queue_timeout=3600)
    assert done.state == "success"
    assert training.chains == ["chain-0001"]
    assert training.said(r"from snapshot \d+ \(step 7\b[^)]*\)")


def test_a_task_that_is_cleared_after_a_failure_begins_anew_with_changed_code(training: Training) -> None:
    script = training.folder / "train.sh"
    script.write_text("true")
    training.again(training.spec("sh train.sh", files=[str(script)]))
    training.save(7)
    training.mended.touch()
    script.write_text("true # and better")
    done = training.again(training.spec("sh train.sh -v", files=[str(script)]), env_vars={"RATE": "0.2"})
    assert done.state == "success"
    assert training.chains == ["chain-0001", "chain-0002"]
    assert training.said(
        "because env.RATE, files.train.sh, tasks.worker.command changed. and trains from the beginning"
    )


@pytest.mark.long
def test_resume_always(training: Training) -> None:
    training.mended.touch()
    training.again()
    training.save(7)
    done = training.again(training.spec("true"), resume="{{ 'always' }}")
    assert done.state == "success"
    assert training.chains == ["chain-0001"]
    assert training.said(r"continues .* although tasks.worker.command changed.* from snapshot \d+ \(step 7\b[^)]*\)")
    assert training.again(training.spec("true")).state == "success"
    assert training.chains == ["chain-0001", "chain-0002"], "the fingerprint is the one that was trained with last"


@pytest.mark.long
def test_resume_never(training: Training) -> None:
    def between() -> None:
        training.save(7)
        training.mended.touch()

    assert training.retried(between, resume="never").state == "success"
    assert training.chains == ["chain-0001", "chain-0002"]
    assert training.said("resume is 'never'. and trains from the beginning")


def test_a_resume_that_is_none_is_told(training: Training) -> None:
    error = training.again(resume="sometimes", retries=3).errors["train"]
    assert isinstance(error, TonySpecError)
    assert "auto, always, never" in str(error)


def test_a_failure_says_what_there_is_to_go_on_from(training: Training) -> None:
    spec = training.spec(restart={"budget": 0, "permanent_exit_codes": [3]})
    error = training.again(spec).errors["train"]
    assert isinstance(error, TonyJobFailed)
    assert error.failure is not None
    assert (error.application_id, error.failure.exit_code, error.permanent) == (training.applications[0], 3, True)


# -- workers that die -----------------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_worker_dies_between_owning_its_chain_and_submitting(training: Training) -> None:
    training.mended.touch()
    training.dies(dying.BEFORE_SUBMISSION)
    owner = training.newest.owner
    assert owner is not None
    assert training.hook.application(owner.application_id) is None
    done = training.again()
    assert done.state == "success"
    assert done.results["train"]["application_id"] != owner.application_id
    assert training.chains == ["chain-0001"]
    assert not training.hook.storage().exists(training.hook.layout.launch_dir(training.identity, owner.application_id))


def test_a_worker_dies_while_its_application_runs(training_anywhere: Training) -> None:
    training = training_anywhere
    spec = job(f"while ! test -e {training.mended}; do sleep 0.1; done", **ONCE)
    training.dies(dying.AFTER_SUBMISSION, spec)
    (live,) = training.hook.find(training.identity)
    training.mended.touch()
    done = training.again(spec)
    assert done.results["train"]["application_id"] == live.id
    assert training.applications == [live.id]


# -- tasks that are cleared while they are deferred ------------------------------------------------------------------


@pytest.mark.parametrize("state_is_lost", [False, True])
def test_a_task_that_is_cleared_while_deferred_ends_its_application_though_no_trigger_does(
    training: Training, marker: Marker, state_is_lost: bool
) -> None:
    """Its next try may be there before its trigger is told; and there may be no trigger."""
    training.dies(dying.BEFORE_DEFERRAL, training.spec(marker.forever), deferrable=True)
    until(marker.path.exists, "the user process", DEADLINE)
    (first,) = training.applications
    training.mended.touch()
    if state_is_lost:
        training.lose_state()
    done = training.cleared(TaskInstanceState.DEFERRED, training.spec(), deferrable=True)
    assert done.state == "success"
    assert training.applications == sorted([first, done.results["train"]["application_id"]])
    assert len(training.applications) == 2
    assert (killed_for(training.hook.application(first)) or "").startswith("try 2 ")
    assert training.said(f"Ending {first} of an earlier try: the task was cleared while it was deferred")


@pytest.mark.long
def test_it_ends_that_application_also_where_it_is_another_training_now(training: Training, marker: Marker) -> None:
    training.dies(dying.BEFORE_DEFERRAL, training.spec(marker.forever), deferrable=True, checkpoint_key="small")
    until(marker.path.exists, "the user process", DEADLINE)
    (first,) = training.applications
    training.mended.touch()
    done = training.cleared(TaskInstanceState.DEFERRED, training.spec(), deferrable=True, checkpoint_key="large")
    assert done.state == "success"
    assert (killed_for(training.hook.application(first)) or "").startswith("try 2 ")


def test_a_result_that_was_there_when_a_deferred_task_was_cleared_is_not_lost(training: Training) -> None:
    training.mended.touch()
    training.dies(dying.BEFORE_DEFERRAL, deferrable=True)
    (first,) = training.applications
    until(lambda: ended(training.hook), "the end of the application", DEADLINE)
    done = training.cleared(TaskInstanceState.DEFERRED, training.spec(), deferrable=True)
    assert done.results["train"]["application_id"] == first


@pytest.mark.long
def test_a_task_that_keeps_its_application_does_so_when_it_is_cleared_while_deferred(training: Training) -> None:
    spec = job(f"while ! test -e {training.mended}; do sleep 0.1; done", **ONCE)
    training.dies(dying.BEFORE_DEFERRAL, spec, deferrable=True, on_kill_action="keep")
    (first,) = training.applications
    training.mended.touch()
    done = training.cleared(TaskInstanceState.DEFERRED, spec, deferrable=True)
    assert (done.state, training.applications) == ("success", [first])


class LosesSight(Telling):
    """Its trigger could not watch the application any more."""

    def execute(self, context: Any) -> Any:
        try:
            return super().execute(context)
        except TaskDeferred as deferral:
            event = WatchEvent(deferral.trigger.job, error="out of reach")
            return self.execute_complete(context, to_plain(event))


def test_a_task_that_is_cleared_after_it_has_failed_attaches_to_what_still_runs(training: Training) -> None:
    spec = job(f"while ! test -e {training.mended}; do sleep 0.1; done", **ONCE)
    failed = training.again(spec, LosesSight, deferrable=True)
    error, (first,) = failed.errors["train"], training.applications
    assert isinstance(error, ClusterUnreachable), "as without deferral: retry policies know the class"
    assert f"the trigger stopped watching {first}: out of reach" in str(error)
    training.mended.touch()
    done = training.cleared(TaskInstanceState.FAILED, spec, deferrable=True)
    assert (done.state, training.applications) == ("success", [first])


def test_a_result_that_a_dead_worker_did_not_deliver_is_returned(training: Training) -> None:
    training.mended.touch()
    training.dies(dying.AFTER_SUCCESS)
    (first,) = training.applications
    done = training.again(training.spec("exit 1"), deferrable=True)
    assert done.state == "success"
    assert done.results["train"]["application_id"] == first
    assert done.results["train"]["final_status"] == "SUCCEEDED"
    assert training.applications == [first]
    assert training.said(f"{first} succeeded in an earlier try of this task, which could not pass")
    assert training.again().results["train"]["application_id"] != first, "delivered: a cleared task trains anew"


def test_the_cluster_has_forgotten_an_application_whose_result_was_not_delivered(training: Training) -> None:
    training.mended.touch()
    training.dies(dying.AFTER_SUCCESS)
    (first,) = training.applications
    forget(training)
    done = training.again()
    assert done.results["train"]["application_id"] == first
    assert training.applications == [first]


@pytest.mark.long
def test_the_cluster_has_forgotten_an_application_that_left_no_result(training: Training, marker: Marker) -> None:
    training.dies(dying.AFTER_SUBMISSION, job(f"{marker.forever}", **ONCE))
    (first,) = training.applications
    training.hook.kill(first, "for the test")
    until(lambda: not processes_of(first), "the end of the application", DEADLINE)  # which write its result
    training.hook.storage().remove(f"{training.hook.job(first, training.identity).directory}/result.json")
    forget(training)
    training.mended.touch()
    done = training.again(job("true", **ONCE), resume="always")
    assert done.state == "success"
    assert training.applications == sorted([first, done.results["train"]["application_id"]])
    assert training.chains == ["chain-0001"]
    assert training.said(f"{first}, which is unknown to the cluster")


def test_a_result_that_airflow_did_not_take_is_returned_by_the_next_try(training: Training) -> None:
    """The task has done its last act, and its worker or Airflow's own server fails before Airflow knows."""
    training.mended.touch()
    calls = iter([True, False])

    def fails_once(*_: Any) -> None:
        if next(calls):
            raise RuntimeError("the API server does not answer")

    done = training.retried(lambda: None, post_execute=fails_once)
    assert done.state == "success"
    assert training.applications == [done.results["train"]["application_id"]]
    assert training.again().results["train"]["application_id"] not in training.applications[:1]
    assert training.chains == ["chain-0001", "chain-0002"]


@pytest.mark.long
def test_without_durable_each_try_has_an_application_of_its_own(training: Training, marker: Marker) -> None:
    training.dies(dying.AFTER_SUBMISSION, training.spec(marker.forever))
    (first,) = training.applications
    training.save(7)
    done = training.again(training.spec(f"rm -f {marker.path}"), durable=False, resume="always")
    training.mended.touch()
    done = training.again(training.spec(f"rm -f {marker.path}"), durable=False)
    assert done.state == "success"
    assert training.chains == ["chain-0001"]
    assert first not in done.results["train"]["application_id"]
    application = training.hook.application(first)
    assert application is not None
    assert application.final_status is FinalStatus.KILLED
    assert training.said(r"from snapshot \d+ \(step 7\b[^)]*\)")


def test_airflows_own_store_finds_an_application_that_the_jobs_store_has_lost(
    training: Training, marker: Marker
) -> None:
    spec = job(f"while ! test -e {training.mended}; do sleep 0.1; done", **ONCE)

    def lose(_: Any) -> None:
        training.hook.storage().remove(training.newest.uri, recursive=True)
        training.mended.touch()

    fails = iter([True, False])

    def post_execute(*_: Any) -> None:
        if next(fails):
            raise RuntimeError("the API server does not answer")

    done = training.again(
        spec,
        wait_for_completion=False,
        retries=1,
        retry_delay=timedelta(0),
        post_execute=post_execute,
        on_retry_callback=lose,
    )
    assert done.state == "success"
    assert training.applications == [done.results["train"]["application_id"]]
    assert training.said("Attaching to|succeeded in an earlier try")


@pytest.mark.long
def test_other_applications_of_the_training_are_ended_before_a_new_one_starts(
    training: Training, marker: Marker
) -> None:
    """Such as one whose records were lost, or of a try that came back."""
    training.dies(dying.AFTER_SUBMISSION, training.spec(marker.forever))
    (first,) = training.applications
    owners = uris.join(training.hook.layout.job_dir(training.identity), OWNERS_DIR)
    for directory in (training.newest.uri, owners, training.hook.layout.notes_dir(training.identity)):
        training.hook.storage().remove(directory, recursive=True)
    training.mended.touch()
    done = training.again(training.spec(f"rm -f {marker.path}"))
    assert done.state == "success"
    application = training.hook.application(first)
    assert application is not None
    assert application.state is ApplicationState.KILLED
    assert f"{done.results['train']['application_id']} takes over its training" in application.diagnostics


# -- files that cannot be read --------------------------------------------------------------------------------------


@pytest.mark.parametrize("record", ["owner", "chain"])
@pytest.mark.long
def test_a_record_that_cannot_be_read_fails_the_task_for_good_and_says_what_to_do(
    training: Training, record: str
) -> None:
    training.again()
    uri = f"{training.newest.uri}/chain.json"
    if record == "owner":
        uri = owner_file(training.hook.layout.job_dir(training.identity), 1)
    write_atomically(training.hook.storage(), uri, b"changed by hand")
    training.mended.touch()
    error = training.again(retries=3, retry_delay=timedelta(0)).errors["train"]
    assert isinstance(error, TonyJobRejected)
    assert f"cannot read {uri}: " in str(error)
    assert "remove the file" in str(error)
    assert len(training.applications) == 1
    training.hook.storage().remove(uri)
    assert training.again().state == "success"


@pytest.mark.parametrize("deferrable", [False, pytest.param(True, marks=pytest.mark.long)])
@pytest.mark.long
def test_a_result_that_cannot_be_read_is_returned_once_it_is_mended(training: Training, deferrable: bool) -> None:
    training.mended.touch()
    training.dies(dying.AFTER_SUCCESS)
    (first,) = training.applications
    uri = f"{training.hook.job(first, training.identity).directory}/result.json"
    good = read_bytes(training.hook.storage(), uri)
    write_atomically(training.hook.storage(), uri, good.replace(b'"SUCCEEDED"', b'"TRIUMPHED"'))
    error = training.again(deferrable=deferrable, retries=1, retry_delay=timedelta(0)).errors["train"]
    assert isinstance(error, TonyJobRejected)
    assert f"cannot read {uri}: " in str(error)
    write_atomically(training.hook.storage(), uri, good)
    assert training.again(deferrable=deferrable).results["train"]["application_id"] == first
    assert training.applications == [first]


@pytest.mark.long
def test_a_failure_whose_result_cannot_be_read_is_tried_again_all_the_same(training: Training) -> None:
    def between() -> None:
        (first,) = training.applications
        uri = f"{training.hook.job(first, training.identity).directory}/result.json"
        write_atomically(training.hook.storage(), uri, b"changed by hand")
        training.save(7)
        training.mended.touch()

    assert training.retried(between).state == "success"
    assert training.chains == ["chain-0001"]
    assert training.said(
        r"Using the cluster's report, because the job's status is unreadable: cannot read \S+/result.json"
    )
    assert training.said(r"from snapshot \d+ \(step 7\b[^)]*\)")


def test_a_forgotten_result_that_cannot_be_read_fails_the_task(training: Training) -> None:
    training.again()
    (first,) = training.applications
    uri = f"{training.hook.job(first, training.identity).directory}/result.json"
    write_atomically(training.hook.storage(), uri, b"changed by hand")
    forget(training)
    error = training.again().errors["train"]
    assert isinstance(error, TonyJobRejected)
    assert uri in str(error)


def forget(training: Training) -> None:
    """What a ResourceManager does after a while, or when it is started without recovery."""
    root = Path(training.hook.layout.root.removeprefix("file://"))
    shutil.rmtree(root / "cluster")


# -- with what user processes really save ---------------------------------------------------------------------------

# Trains 20 steps from where it is, checks that it has the weights of that step, saves, and fails until it is mended.
COUNTS = """
step=${TONY_RESUME_STEP:-0}
test $step = 0 || test "$(cat "$TONY_RESUME_FROM")" = "weights of $step" || exit 9
step=$((step + 20))
cd "$TONY_CHECKPOINT_DIR"
printf 'weights of %s' $step > w-$step
printf '{"step": %s, "entry": "w-%s", "files": [{"path": "w-%s", "size": %s}]}' \\
    $step $step $step $(wc -c < w-$step) > .new && mv .new w-$step.tony.json
cd - > /dev/null
echo "{\\"step\\": $step}" >> "$TONY_METRICS_FILE"
"""


def test_each_try_goes_on_from_where_the_last_one_stopped(training_anywhere: Training) -> None:
    training = training_anywhere
    deferrable = training.is_local  # one of the two on each
    error = training.again(training.spec(COUNTS), deferrable=deferrable).errors["train"]
    assert isinstance(error, TonyJobFailed)
    assert error.resumed_step is None
    assert training.said(r"The job's newest checkpoint is snapshot \d+ \(step 20\b")
    error = training.again(training.spec(COUNTS), deferrable=deferrable).errors["train"]
    assert isinstance(error, TonyJobFailed)
    assert error.failure is not None
    assert (error.failure.exit_code, error.resumed_step) == (3, 20)
    training.mended.touch()
    result = training.again(training.spec(COUNTS), deferrable=deferrable).results["train"]
    assert (result["resumed_step"], result["step"], result["checkpoint_step"]) == (40, 60, 60)
    assert result["checkpoint_dir"].startswith(f"{result['checkpoint_chain']}/checkpoints/save-")
    assert (result["generation"], result["restarts"]) == (1, 0)
    assert training.chains == ["chain-0001"]
    result = training.again(training.spec(COUNTS), deferrable=deferrable).results["train"]
    assert (result["resumed_step"], result["step"]) == (None, 20)
    assert training.chains == ["chain-0001", "chain-0002"]


@pytest.mark.long
def test_another_runs_training_is_continued(training: Training) -> None:
    training.mended.touch()
    first = training.again(training.spec(COUNTS)).results["train"]
    second = training.again(training.spec(COUNTS), resume_from=first["checkpoint_chain"]).results["train"]
    assert (second["resumed_step"], second["step"]) == (20, 40)
    assert second["checkpoint_chain"] != first["checkpoint_chain"]
    assert second["checkpoint_dir"].startswith(second["checkpoint_chain"])


def test_restarts_within_the_job_are_told_and_counted(training: Training) -> None:
    spec = training.spec(COUNTS + "test $step -ge 60 || exit 4", restart={"budget": 3})
    spec["tasks"]["worker"]["restart"] = "gang"
    training.mended.touch()
    result = training.again(spec).results["train"]
    assert (result["resumed_step"], result["step"], result["generation"], result["restarts"]) == (40, 60, 3, 2)
    why = r"worker:0 on \S+ ended with exit code 4; restart 2 resumes from snapshot \d+"
    assert training.said(rf"{why} \(step 40\b[^)]*\) \(generation 3\)")


def test_a_warm_start_reaches_the_user_process(training: Training) -> None:
    training.mended.touch()
    first = training.again(training.spec("echo warm > $TONY_MODEL_DIR/weights")).results["train"]
    spec = training.spec('test "$(cat $TONY_WARM_START/weights)" = warm')
    assert training.again(spec, warm_start=first["model_dir"]).state == "success"


def test_a_checkpoint_after_which_every_try_fails_is_passed_over(training: Training) -> None:
    fails = training.spec("test $TONY_RESUME_STEP != 40 || { echo 'RuntimeError: bad weights' >&2; exit 9; }")
    training.again()
    training.save(20)
    training.save(40)
    training.mended.touch()
    for _ in range(2):
        assert isinstance(training.again(fails, resume="always").errors["train"], TonyJobFailed)
        assert training.said(r"trains from snapshot \d+ \(step 40\b")
    result = training.again(fails, resume="always").results["train"]
    assert result["resumed_step"] == 20
    assert training.said(r"trains from snapshot \d+ \(step 20\b[^)]*\) in \S+, not from snapshot \d+ \(step 40\b")
    assert training.said(r"Warning: the job resumed from snapshot \d+ \(step 20\b.* failed 2 times in the same way")
