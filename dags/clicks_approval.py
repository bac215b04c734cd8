"""
### Ask somebody before a model is published

Train a model, then wait for a person: Airflow's own `ApprovalOperator` shows what the training has reached, under
*Required Actions* of the run, and the model is published when somebody approves it. Who that was is kept with the
model and in the asset's event. When it is rejected, or when nobody answers within three days, the published model
stays, and the run succeeds all the same.

The run waits without a worker, a trigger or a container. The model is on the store meanwhile, where the link in the
question leads; it stays there whatever the answer is.

To ask certain people only, give the operator `assigned_users`; to tell them, `notifiers`.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import DAG, Asset

from tony_examples.clicks import training_job, write_clicks
from tony_examples.form import how_to_train, where_to_run
from tony_examples.publishing import publish
from tony_provider.operators.tony import TonyTrainOperator

MODELS = "clicks_approval/models"
MODEL = Asset("clicks_approval_model")

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
| log loss on held-out clicks | {{ '%.4f' | format(trained['metrics']['log_loss']) }} (a coin's: 0.6931) |
| epochs | {{ trained['step'] }} |
| learning rate | {{ trained['metrics']['learning_rate'] }} |
| model | `{{ trained['model_dir'] }}` |
| application | `{{ trained['application_id'] }}` |
""",
        response_timeout=timedelta(days=3),
        defaults=ApprovalOperator.REJECT,
    )

    write_clicks() >> train
    (
        train
        >> approve
        >> publish.override(outlets=[MODEL])(
            MODELS,
            train.output,
            approved_by="{{ ti.xcom_pull('approve')['responded_by_user']['name'] }}",
        )
    )
