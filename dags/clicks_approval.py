"""
### Ask a person before a model is published

Train a model, then wait for a person. Airflow's `ApprovalOperator` shows the result of the training under *Required
Actions* of the run. If a user approves it, the run publishes the model. The version and its asset event contain the
name of this user. If a user rejects the model, or if no user answers within three days, the published model stays, and
the run succeeds.

The run waits without a worker, a trigger or a container. The model stays on the store, whatever the answer is.

To allow only certain users to answer, set `assigned_users` of the operator. To notify them, set `notifiers`.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import DAG, Asset, task

from tony_examples.clicks import DAY, training_job, write_clicks
from tony_examples.form import how_to_train, where_to_run
from tony_provider.operators.tony import TonyTrainOperator
from tony_provider.publishing import publish_model

MODEL = Asset("clicks_approval_model")


@task(outlets=[MODEL])
def publish(trained: Any, user: str) -> Any:
    """Publish the model as a new version."""
    return publish_model("clicks_approval/models", trained, approved_by=user)


with DAG(
    "clicks_approval",
    schedule=None,
    default_args={"retries": 2, "retry_delay": timedelta(seconds=30)},
    params={**how_to_train(), **where_to_run()},
    doc_md=__doc__,
    tags=["tony", "example"],
):
    train = TonyTrainOperator(
        task_id="train",
        yarn_queue="{{ params.queue or '' }}",
        execution_timeout=timedelta(hours=1),
        job=training_job(),
    )

    approve = ApprovalOperator(
        task_id="approve",
        subject="Publish the clicks model of {{ macros.tony.run_date() | ds }}?",
        body="""\
{%- set trained = ti.xcom_pull('train') -%}
| | |
|---|---|
| log loss on held-out clicks | {{ '%.4f' | format(trained['metrics']['log_loss']) }} (chance: 0.6931) |
| epochs | {{ trained['step'] }} |
| learning rate | {{ trained['metrics']['learning_rate'] }} |
| model | `{{ trained['model_dir'] }}` |
| application | `{{ trained['application_id'] }}` |
""",
        response_timeout=timedelta(days=3),
        defaults=ApprovalOperator.REJECT,
    )

    write_clicks(DAY) >> train
    train >> approve >> publish(train.output, "{{ ti.xcom_pull('approve')['responded_by_user']['name'] }}")
