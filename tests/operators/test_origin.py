"""What a training begins with: another one's checkpoint, an earlier model, a key of its author's."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import Any

import pytest
from airflow.models.task_state_store import TaskStateStoreModel
from airflow.sdk import DAG, CronPartitionTimetable
from airflow.utils.session import create_session
from sqlalchemy import select

from tests.airflow_dags import run, run_made_with
from tests.checkpoints import commit
from tests.operators.jobs import DAG_ID, applications, job
from tests.operators.trainings import DATES, MORNING, RUN_ID, Training
from tests.owners import open_after
from tony_provider.cluster.records.summary import JOB_KEY
from tony_provider.cluster.training.checkpoint_chains import CheckpointChains, new_chain
from tony_provider.exceptions import TonyJobRejected, TonySpecError
from tony_provider.operators.tony import TonyTrainOperator
from tony_provider.runtime.checkpoint.catalog import foreign_catalog
from tony_provider.runtime.storage import uris

OTHER = "manual__2026-01-04T06:00:00+00:00"


def chain_of(training: Training, steps: list[int], **other: Any) -> str:
    """URI of a chain that a training of another run has left."""
    ids = {"dag_id": "operator_test", "run_id": OTHER, "task_id": "train", **other}
    chains = CheckpointChains(training.hook.storage(), training.hook.layout, training.hook.identity(**ids))
    uri = open_after(chains, chains.newest(), new_chain())
    for step in steps:
        commit(training.hook.storage(), uri, step)
    return uri


@pytest.fixture
def ready(training: Training) -> Training:
    training.mended.touch()
    return training


def test_another_run_of_the_same_task_is_continued(ready: Training) -> None:
    uri = chain_of(ready, [40, 90])
    done = ready.again(resume_from={"run_id": "{{ '" + OTHER + "' }}"})
    assert ready.description(done).continues == uri
    assert done.results["train"]["checkpoint_chain"] == ready.newest.uri != uri
    assert ready.newest.about is not None
    assert ready.newest.about.continues == uri
    assert ready.said(r"opens a new checkpoint chain .* trains from snapshot \d+ \(step 90\b[^)]*\) in " + uri)


@pytest.mark.parametrize(
    "other", [{"dag_id": "other_dag", "task_id": "fit"}, {"map_index": 3}, {"checkpoint_key": "de"}]
)
def test_any_other_training_is_continued(ready: Training, other: dict[str, Any]) -> None:
    uri = chain_of(ready, [5], **other)
    text = {key: str(value) for key, value in other.items()}
    assert ready.description(ready.again(resume_from={"run_id": OTHER, **text})).continues == uri


def test_a_chain_is_continued_by_its_uri(ready: Training) -> None:
    uri = chain_of(ready, [5])
    chain_of(ready, [6])
    done = ready.again(resume_from=uri + "/")
    assert ready.description(done).continues == uri


def test_an_older_checkpoint_is_continued_by_its_number_or_uri(ready: Training) -> None:
    uri = chain_of(ready, [5, 6, 7])
    catalog = foreign_catalog(ready.hook.storage(), uri)
    six = catalog.list()[1]
    done = ready.again(resume_from={"run_id": OTHER, "snapshot": "6"})
    assert ready.description(done).continues == six.uri
    assert done.results["train"]["resumed_step"] == 6
    done = ready.again(resume_from=six.uri)
    assert done.results["train"]["resumed_step"] == 6


def test_a_training_returns_to_an_older_checkpoint_of_its_own(ready: Training) -> None:
    ready.again()
    for step in (5, 6, 7):
        ready.save(step)
    first = ready.newest.uri
    for _ in range(2):  # a retry finds the number in the first chain again
        done = ready.again(resume="never", resume_from={"run_id": RUN_ID, "snapshot": 6})
        assert done.results["train"]["resumed_step"] == 6
        assert ready.newest.uri != first


@pytest.mark.parametrize(
    "nothing",
    [None, "{{ none or '' }}", *(pytest.param(each, marks=pytest.mark.long) for each in ("", {"run_id": ""}, {}))],
)
def test_nothing_to_continue(ready: Training, nothing: Any) -> None:
    assert ready.description(ready.again(resume_from=nothing, warm_start="")).continues is None


def test_what_it_has_saved_itself_comes_first(training: Training) -> None:
    other = chain_of(training, [90])

    def between() -> None:
        training.save(7)
        training.hook.storage().remove(other, recursive=True)
        training.mended.touch()

    done = training.retried(between, resume_from=other)
    assert done.state == "success"
    assert training.said(r"continues .* trains from snapshot \d+ \(step 7\b[^)]*\) in " + training.newest.uri)


@pytest.mark.parametrize(
    ("resume_from", "words"),
    [
        ({"run_id": "never"}, "resume_from: that training has never run"),
        ("file:///etc", "resume_from: 'file:///etc' is not in the store of the staging directory"),
        ("{root}/cluster", "is not the directory of a chain or checkpoint"),
        ("{root}/../x", "resume_from: "),
        ("{empty}", "holds no checkpoint to resume from"),
        ({"run_id": OTHER, "snapshot": 3}, "there is no snapshot 3 in "),
        ({"run_id": OTHER, "snapshot": 3}, "the chain holds snapshot 40 (step 40), snapshot 90 (step 90)"),
        ("{ready}/checkpoints/save-000007-00000000", "; the chain holds snapshot 40 (step 40), snapshot 90 (step 90)"),
    ],
)
def test_what_is_not_there_is_refused_and_nothing_is_started(ready: Training, resume_from: Any, words: str) -> None:
    uri = chain_of(ready, [40, 90])
    if isinstance(resume_from, str):
        resume_from = resume_from.format(root=ready.hook.layout.root, empty=chain_of(ready, [], map_index=7), ready=uri)
    error = ready.again(resume_from=resume_from, retries=3).errors["train"]
    assert isinstance(error, TonyJobRejected)
    assert words in str(error)
    assert applications(ready.hook) == []


@pytest.mark.parametrize(
    ("resume_from", "words"),
    [
        ({"run": "x"}, "'run' is not known; did you mean run_id"),
        ({"run_id": "x", "map_index": "one"}, "map_index: should be a whole number"),
        ({"run_id": "x", "map_index": 1, "checkpoint_key": "y"}, "map_index and checkpoint_key"),
        ({"run_id": 5}, "resume_from.run_id: should be text"),
        ({"run_id": "x", "snapshot": "newest"}, "resume_from.snapshot: should be a whole number"),
        (["x"], "should be a mapping"),
    ],
)
def test_what_cannot_be_meant_is_a_wrong_specification(ready: Training, resume_from: Any, words: str) -> None:
    error = ready.again(resume_from=resume_from, retries=3).errors["train"]
    assert isinstance(error, TonySpecError)
    assert words in str(error)


# -- warm start -----------------------------------------------------------------------------------------------------


def publish(training: Training, number: str, period_end: str, *, complete: bool = True) -> str:
    """A version of a model, as the example DAG publishes it."""
    storage = training.hook.storage()
    directory = uris.join(training.hook.layout.root, "clicks/models/versions", number)
    model_dir = uris.join(directory, "model")
    storage.write(uris.join(model_dir, "weights"), number.encode())
    if complete:
        about = {"model_dir": model_dir, "period_end": period_end, "metrics": {}}
        storage.write(uris.join(directory, "version.json"), json.dumps(about).encode())
    return model_dir


NEWEST = "{{ macros.tony.newest_model('clicks/models') }}"


def test_the_newest_model_of_an_earlier_period(ready: Training) -> None:
    publish(ready, "1", "2026-01-03T06:00:00+00:00")
    publish(ready, "9", "2026-01-04T06:00:00+00:00")
    newest = publish(ready, "10", "2026-01-04T07:00:00+01:00")  # the same moment
    publish(ready, "11", MORNING.isoformat())  # this run's own, of a former time
    publish(ready, "12", "2026-01-06T06:00:00+00:00")
    publish(ready, "13", "2026-01-04T06:30:00+00:00", complete=False)
    ready.hook.storage().remove(publish(ready, "14", "2026-01-04T06:45:00+00:00"), recursive=True)
    done = ready.again(warm_start=NEWEST)
    assert ready.description(done).warm_start == newest
    assert ready.newest.about is not None
    assert ready.newest.about.warm_start == newest
    assert ready.said(f"trains from the beginning, warm-started from {newest}")


def test_a_partition_that_is_made_up_for_later_begins_with_the_model_of_the_partition_before(ready: Training) -> None:
    before = publish(ready, "1", "2026-01-04T00:00:00+00:00")
    publish(ready, "2", "2026-11-26T00:00:00+00:00")
    now = datetime(2026, 11, 27, tzinfo=UTC)
    fields = {"partition_key": "2026-01-05", "partition_date": datetime(2026, 1, 5, tzinfo=UTC), "run_after": now}
    with DAG(DAG_ID, schedule=CronPartitionTimetable("@daily", timezone="UTC")) as dag:
        TonyTrainOperator(task_id="train", job=ready.spec(), warm_start=NEWEST)
    done = run_made_with(dag, "backfill__2026-01-05", **fields)
    assert ready.description(done).warm_start == before
    (application_id,) = ready.applications
    key, run = JOB_KEY + application_id, TaskStateStoreModel.run_id == done.run_id
    with create_session() as session:
        value = session.scalars(select(TaskStateStoreModel.value).where(TaskStateStoreModel.key == key, run)).one()
    assert json.loads(value)["run_date"] == "2026-01-05T00:00:00+00:00"


@pytest.mark.long
def test_before_another_moment(ready: Training) -> None:
    publish(ready, "1", "2026-01-03T06:00:00+00:00")
    second = publish(ready, "2", "2026-01-06T06:00:00+00:00")
    macro = "{{ macros.tony.newest_model('" + ready.hook.layout.root + "/clicks/models', before='2026-02-01') }}"
    assert ready.description(ready.again(warm_start=macro)).warm_start == second


@pytest.mark.long
def test_no_model_yet(ready: Training) -> None:
    assert ready.description(ready.again(warm_start=NEWEST)).warm_start is None


def test_a_model_that_is_not_there_is_refused(ready: Training) -> None:
    error = ready.again(warm_start=f"{ready.hook.layout.root}/models/1", retries=3).errors["train"]
    assert isinstance(error, TonyJobRejected)
    assert re.search(r"warm_start: \S+ does not exist", str(error))
    assert applications(ready.hook) == []


def test_a_checkpoint_chain_is_a_warm_start_once_it_holds_a_checkpoint(ready: Training) -> None:
    uri = chain_of(ready, [])
    error = ready.again(warm_start=uri).errors["train"]
    assert f"warm_start: {uri} holds no checkpoint yet" in str(error)
    commit(ready.hook.storage(), uri, 40)
    assert ready.description(ready.again(warm_start=uri)).warm_start == uri


def test_a_version_that_says_something_else_is_named(ready: Training) -> None:
    file = f"{ready.hook.layout.root}/clicks/models/versions/1/version.json"
    ready.hook.storage().write(file, b'{"model": "x"}')
    error = ready.again(warm_start=NEWEST).errors["train"]
    assert file in str(error)


@pytest.mark.parametrize("place", ["/etc", "file:/etc", "hdfs://prod/models/1"])
def test_a_version_names_a_model_of_the_store(ready: Training, place: str) -> None:
    """Seen: ``/etc``, which a job had written there, came out of the macro, for `files` of the next job."""
    file = f"{ready.hook.layout.root}/clicks/models/versions/1/version.json"
    ready.hook.storage().write(file, json.dumps({"model_dir": place, "period_end": "2026-01-03"}).encode())
    error = str(ready.again(job("true", files=[f"{NEWEST}::model"])).errors["train"])
    expected = f"model_dir: '{place}' is not a URI of the store that the models are published on (file://…)"
    assert f"{file}: {expected}" in error


# -- keys -----------------------------------------------------------------------------------------------------------


def test_mapped_tasks_are_told_apart_by_their_authors_keys(ready: Training) -> None:
    with DAG("operator_test", schedule=None) as dag:
        TonyTrainOperator.partial(task_id="train", job=job("true"), poll_interval=0.5).expand(
            checkpoint_key=["de", "fr"]
        )
    done = run(dag, **DATES)
    assert done.state == "success"
    jobs = [file.name for file in ready.hook.storage().list(f"{ready.hook.layout.root}/jobs")]
    assert sorted(jobs) == sorted(
        ready.hook.identity(dag_id="operator_test", run_id=RUN_ID, task_id="train", checkpoint_key=key).name
        for key in ("de", "fr")
    )


def test_two_mapped_tasks_of_one_key_are_no_one_training(ready: Training) -> None:
    """The second would return what the first has made with other parameters."""
    errors: list[BaseException] = []
    with DAG("operator_test", schedule=None) as dag:
        TonyTrainOperator.partial(
            task_id="train",
            job=job("sleep 600"),
            wait_for_completion=False,
            on_failure_callback=lambda context: errors.append(context["exception"]),
        ).expand(checkpoint_key=["de", "de"])
    done = run(dag, **DATES)
    [application_id] = applications(ready.hook)
    try:
        assert done.state == "failed"
        [error] = errors
        assert isinstance(error, TonySpecError)
        assert "the mapped instances 0 and 1 of this task have the same key" in str(error)
        assert application_id in str(error)
        assert [application.id for application in ready.hook.live()] == [application_id]
    finally:
        ready.hook.kill(application_id, "seen enough")
