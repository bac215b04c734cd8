"""
### Watch a training, and end it when it hangs

Two tasks side by side, with no arrow between them: one trains, the other watches. The watch follows the training by
its task's name, whenever it begins and through its retries, and ends well when the training does.

A process that dies is the job's own business, and is started again without Airflow. The watch is for what the job
does not see: an application master that hangs, a node that has become so slow that the training would take for
ever. Then it ends the application, and fails with what was silent or slow, since when, and on which node. The
training's task is tried again, after the minute that its retry policy says, and goes on from the newest checkpoint.
`tell` runs only when the watch has failed: a place for a message to those who mind the cluster. To have the new
application watched, too, clear the watch.

Both are deferred, and need no worker's slot while they wait. The trigger form has a pause between epochs, so that
there is something to watch.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG, Param, get_current_context, task

from tony_examples.clicks import AS_IN_THE_FORM, training_job, write_clicks
from tony_examples.form import TRAINING, how_to_train, where_to_run
from tony_provider.operators.tony import TonyTrainOperator
from tony_provider.retry_policy import TonyRetryPolicy
from tony_provider.sensors.tony import TonyHeartbeatSensor


@task(trigger_rule="one_failed")
def tell() -> None:
    """In your DAG: a message to somebody."""
    run = get_current_context()["dag_run"]
    print(f"The training of {run.run_id} was not well; the log of the task watch says what was found")


with DAG(
    "clicks_watched",
    schedule=None,
    params={
        **how_to_train(epochs=10),
        "pause": Param(
            1.0,
            type="number",
            minimum=0,
            maximum=60,
            title="Pause",
            description="Seconds after each epoch. More than 10 for two minutes, and the watch ends the training.",
            section=TRAINING,
        ),
        **where_to_run(),
    },
    doc_md=__doc__,
    tags=["tony", "example"],
):
    clicks = write_clicks()

    train = TonyTrainOperator(
        task_id="train",
        yarn_queue="{{ params.queue or '' }}",
        deferrable=True,
        retries=3,
        # By default what somebody has ended is not tried again; here that somebody may be the watch.
        retry_policy=TonyRetryPolicy(killed_delay=timedelta(minutes=1)),
        execution_timeout=timedelta(hours=1),
        job=training_job(AS_IN_THE_FORM + " --pause {{ params.pause }}"),
    )

    watch = TonyHeartbeatSensor(
        task_id="watch",
        train_task_id="train",
        start_timeout=timedelta(minutes=30),  # for a full queue, too
        max_heartbeat_age=timedelta(minutes=2),
        min_steps_per_second=0.1,  # a step is an epoch here
        slow_for=timedelta(minutes=2),
        on_stale="kill",
        deferrable=True,
    )

    clicks >> train
    watch >> tell()
