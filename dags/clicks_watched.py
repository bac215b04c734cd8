"""
### Watch a training, and end it when it hangs

Two tasks run concurrently, without a dependency: `train` trains, and the sensor `watch` observes the training by the ID
of its task, through all its retries. If the training succeeds, the sensor succeeds.

If a process fails, the job restarts it without Airflow. The sensor detects two problems that the job cannot detect: an
application master that hangs, and a training that has become too slow. Then it ends the application, and fails with the
reason, the time and the node. Airflow retries the training after the delay of the retry policy, and the retry resumes
from the newest checkpoint.

The task `alert` runs only if the sensor fails. Send a message to your team there. To also watch the new application,
clear `watch`.

Both tasks are deferred, so they need no worker slot while they wait. The parameter *Pause* slows the training down.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG, Param, get_current_context, task

from tony_examples.clicks import DAY, OPTIONS, training_job, write_clicks
from tony_examples.form import TRAINING, how_to_train, where_to_run
from tony_provider.operators.tony import TonyTrainOperator
from tony_provider.retry_policy import TonyRetryPolicy
from tony_provider.sensors.tony import TonyHeartbeatSensor


@task(trigger_rule="one_failed")
def alert() -> None:
    """Log an alert. In your own DAG, send a message."""
    run = get_current_context()["dag_run"]
    print(f"The training of {run.run_id} has a problem: see the log of the task watch")


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
            description="Seconds after each epoch. With more than 10, the sensor ends the training after 2 minutes.",
            section=TRAINING,
        ),
        **where_to_run(),
    },
    doc_md=__doc__,
    tags=["tony", "example"],
):
    clicks = write_clicks(DAY)

    train = TonyTrainOperator(
        task_id="train",
        yarn_queue="{{ params.queue or '' }}",
        deferrable=True,
        retries=3,
        # By default, Airflow does not retry a training that was killed. Here, the sensor may have killed it.
        retry_policy=TonyRetryPolicy(killed_delay=timedelta(minutes=1)),
        execution_timeout=timedelta(hours=1),
        job=training_job(OPTIONS + " --pause {{ params.pause }}"),
    )

    watch = TonyHeartbeatSensor(
        task_id="watch",
        train_task_id="train",
        start_timeout=timedelta(minutes=30),  # includes the wait in the queue
        max_heartbeat_age=timedelta(minutes=2),
        min_steps_per_second=0.1,  # a step is an epoch here
        slow_for=timedelta(minutes=2),
        on_stale="kill",
        deferrable=True,
    )

    clicks >> train
    watch >> alert()
