"""What Airflow's OpenLineage provider gets to know of a training, asked as it asks."""

from __future__ import annotations

from typing import Any, ClassVar, cast

from airflow.providers.openlineage.extractors.manager import ExtractorManager

from tests.airflow_dags import run
from tests.operators.jobs import dag_of, job
from tony_provider.hooks.tony import TonyHook
from tony_provider.operators.tony import TonyTrainOperator
from tony_provider.runtime.storage import uris
from tony_provider.runtime.storage.helpers import write_atomically


class IsAsked(TonyTrainOperator):
    """In the process of the task, where the provider's listener asks."""

    answers: ClassVar[list[Any]] = []

    def post_execute(self, context: Any, result: Any = None) -> None:
        nothing = cast(Any, None)
        IsAsked.answers[:] = [
            self.get_openlineage_facets_on_start(),
            self.get_openlineage_facets_on_complete(nothing),
            self.get_openlineage_facets_on_failure(nothing),
        ]


def named(datasets: Any) -> set[str]:
    return {f"{dataset.namespace}:{dataset.name}" for dataset in datasets}


def test_what_it_reads_and_writes(local: TonyHook) -> None:
    data = f"{local.layout.root}/data.csv"
    write_atomically(local.storage(), data, b"1,2,3")
    scores = f"{uris.parent(local.layout.root)}/scores"
    spec = job("cp data.csv $TONY_MODEL_DIR/", files=[data, "greeting.sh"], outputs={"scores": scores})
    with dag_of(spec, IsAsked) as dag:
        done = run(dag)
    assert done.state == "success", done.errors
    before, after, failed = IsAsked.answers
    path = data.partition("://")[2]
    assert named(before.inputs) == named(after.inputs) == named(failed.inputs) == {f"file:{path}"}
    result = done.results["train"]
    assert result["outputs"] == {"scores": {"uri": scores, "files": 0, "bytes": 0}}
    assert named(after.outputs) == {f"file:{uri.partition('://')[2]}" for uri in (result["model_dir"], scores)}
    assert after.run_facets["externalQuery"].externalQueryId == result["application_id"]


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
