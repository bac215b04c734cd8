"""What Airflow's OpenLineage provider gets to know of a training, asked as it asks."""

from __future__ import annotations

import json
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import pytest
from airflow.providers.openlineage.extractors.manager import ExtractorManager
from airflow.utils.state import TaskInstanceState

from tests.airflow_dags import run
from tests.operators.jobs import DAG_ID, dag_of, job
from tony_provider.hooks.tony import TonyHook
from tony_provider.operators.tony import TonyTrainOperator
from tony_provider.runtime.storage import uris
from tony_provider.runtime.storage.base import write_atomically


class IsAsked(TonyTrainOperator):
    """In the process of the task, the provider collects its lineage for each kind of event."""

    answers: ClassVar[dict[str, Any]] = {}

    def post_execute(self, context: Any, result: Any = None) -> None:
        ti = context["ti"]
        ti.bundle_instance = SimpleNamespace(name="dags-in-git", version="1f2e3d")  # dag.test() gives none
        manager = ExtractorManager()  # type: ignore[no-untyped-call]
        for state in (TaskInstanceState.RUNNING, TaskInstanceState.SUCCESS, TaskInstanceState.FAILED):
            IsAsked.answers[state] = manager.extract_metadata(context["dag_run"], self, state, ti)


def named(datasets: Any) -> set[str]:
    return {f"{dataset.namespace}:{dataset.name}" for dataset in datasets}


def collected() -> tuple[Any, Any, Any]:
    """At the start, after a success, after a failure."""
    states = (TaskInstanceState.RUNNING, TaskInstanceState.SUCCESS, TaskInstanceState.FAILED)
    before, after, failed = (IsAsked.answers[state] for state in states)
    return before, after, failed


def test_what_it_reads_and_writes(local: TonyHook) -> None:
    data, clicks = (f"{local.layout.root}/{name}" for name in ("data.csv", "clicks/day=2026-01-05/part-0.csv"))
    for uri in (data, clicks):
        write_atomically(local.storage(), uri, b"1,2,3")
    scores = f"{uris.parent(local.layout.root)}/scores"
    spec = job(
        "cp data.csv $TONY_MODEL_DIR/",
        files=[data, "greeting.sh"],
        inputs={"clicks": f"{local.layout.root}/clicks/day=*/part-*.csv", "one": clicks.removeprefix("file://")},
        outputs={"scores": scores},
    )
    with dag_of(spec, IsAsked) as dag:
        done = run(dag)
    assert done.state == "success", done.errors
    before, after, failed = collected()
    read = {f"file:{uri.partition('://')[2]}" for uri in (data, f"{local.layout.root}/clicks", clicks)}
    assert named(before.inputs) == named(after.inputs) == named(failed.inputs) == read
    assert named(before.outputs) == named(failed.outputs) == {f"file:{scores.partition('://')[2]}"}
    result = done.results["train"]
    assert result["outputs"] == {"scores": {"uri": scores, "files": 0, "bytes": 0}}
    assert named(after.outputs) == {f"file:{uri.partition('://')[2]}" for uri in (result["model_dir"], scores)}
    assert after.run_facets["externalQuery"].externalQueryId == result["application_id"]


def test_which_training_and_which_version_of_the_dag(local: TonyHook) -> None:
    """The training's id is what its processes find, in each try."""
    spec = job("printf '\"%s\"' $TONY_TRAINING_ID > $TONY_RESULT_FILE")
    fails = iter([True, False])

    class FailsOnce(IsAsked):
        def post_execute(self, context: Any, result: Any = None) -> None:
            super().post_execute(context, result)
            seen.append((self.told or {})["returned"])
            if next(fails):
                raise RuntimeError("the API server does not answer")

    seen: list[str] = []
    with dag_of(spec, FailsOnce, retries=1, retry_delay=timedelta(0), durable=False) as dag:
        done = run(dag)
    assert done.state == "success", done.errors
    _, after, failed = collected()
    training = local.identity(dag_id=DAG_ID, run_id=done.run_id, task_id="train").name
    assert seen == [training, training]
    for event in (after, failed):
        assert event.run_facets["tony_training"].trainingId == training
        facet = event.job_facets["tony_dag"]
        assert (facet.bundleName, facet.bundleVersion) == ("dags-in-git", "1f2e3d")
        assert facet.dagVersionId == str(done.task_instances["train"].dag_version_id)


def test_paths_without_an_authority_are_of_the_connections_hdfs(
    airflow_db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No cluster is asked: the staging directory says which HDFS it is."""
    extra = {"webhdfs": "http://127.0.0.1:1", "staging_dir": "hdfs://prod:8020/user/alice/.tony"}
    extra["hive_metastore"] = "thrift://metastore:9083"
    connection = {"conn_type": "tony", "host": "http://127.0.0.1:2", "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_TONY_DEFAULT", json.dumps(connection))
    inputs: dict[str, Any] = {
        "clicks": "hdfs:///clicks/day=1/*.csv",
        "old": "hdfs://old/clicks",
        "bucket": "s3://raw/clicks",
    }
    inputs["table"] = {"table": "web.clicks"}
    with dag_of(job("true", inputs=inputs, files=["hdfs:///code/data.csv"])) as dag:
        task = cast(TonyTrainOperator, dag.task_dict["train"])
    assert named(task.get_openlineage_facets_on_start().inputs) == {
        "hdfs://prod:8020:/code/data.csv",
        "hdfs://prod:8020:/clicks/day=1",
        "hdfs://old:/clicks",
        "s3://raw:/clicks",
        "hive://metastore:9083:web.clicks",
    }


def test_the_provider_finds_the_methods(airflow_db: None) -> None:
    with dag_of(job("true")) as dag:
        pass
    assert (
        ExtractorManager().get_extractor_class(  # type: ignore[no-untyped-call]
            cast(Any, dag.task_dict["train"])
        )
        is not None
    )


def test_a_wrong_job_is_no_matter_for_lineage(airflow_db: None) -> None:
    with dag_of({"framework": "none such"}) as dag:
        pass
    task = dag.task_dict["train"]
    assert isinstance(task, TonyTrainOperator)
    assert task.get_openlineage_facets_on_start().inputs == []
