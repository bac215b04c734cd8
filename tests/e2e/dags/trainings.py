"""One training each, in the ways that an author may have it waited for."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, Param
from jobs import ONCE, PARAMS, TWICE, job

from tony_provider.operators.tony import TonyTrainOperator


def training(dag_id: str, spec: dict[str, Any] | None = None, **arguments: Any) -> None:
    with DAG(dag_id, schedule=None, params=PARAMS):
        TonyTrainOperator(task_id="train", job=spec or job(), poll_interval=1, **arguments)


training("waits", **TWICE, deferrable=False)
training("waits_keep", **TWICE, deferrable=False, on_kill_action="keep")
training("defers", **TWICE, deferrable=True)
training("defers_at_a_desk", **ONCE, deferrable=True)
training("defers_short", **ONCE, deferrable=True, execution_timeout=timedelta(seconds=25))
too_large = job(tasks={"worker": {"instances": 4, "memory": "2500MiB", "command": "true"}})  # two nodes have room for 2
training("defers_large", too_large, **ONCE, deferrable=True, queue_timeout=15)

with DAG("mapped", schedule=None, params=PARAMS):
    mapped = TonyTrainOperator.partial(
        task_id="train", job=job(), allowed_overrides=["env.LETTER"], deferrable=True, poll_interval=1, **TWICE
    )
    mapped.expand(overrides=[{"env": {"LETTER": letter}} for letter in "abc"])

with DAG("mapped_by_key", schedule=None, params=PARAMS):
    mapped = TonyTrainOperator.partial(
        task_id="train", job=job(), allowed_overrides=["env.LETTER"], deferrable=True, poll_interval=1, **TWICE
    )
    mapped.expand_kwargs([{"checkpoint_key": letter, "overrides": {"env": {"LETTER": letter}}} for letter in "ab"])

FORM = {
    "steps": Param(100, type="integer", minimum=1, maximum=1000, title="Steps", section="Training"),
    "every": Param(10, type="integer", minimum=1, title="Steps from one checkpoint to the next", section="Training"),
    "data": Param("clicks", type="string", minLength=1, title="Data set", description="What to train on."),
    "queue": Param(None, type=["null", "string"], title="YARN queue", section="Cluster"),
}
with DAG("form", schedule=None, params=FORM):
    watched = job(
        name="form.train on {{ params.data }}",
        files=[*job()["files"], "programs/writer.py"],
        tensorboard={"memory": "512MiB"},
    )
    watched["env"] |= {"DATA": "{{ params.data }}", "GO": "/dev/null"}
    watched["tasks"]["worker"] = {
        "memory": "256MiB",
        "command": "mkdir -p $FAULTS_DIR && python writer.py 1 20 && exec python count.py",
    }
    TonyTrainOperator(
        task_id="train",
        yarn_queue="{{ params.queue or '' }}",
        job=watched,
        deferrable=True,
        poll_interval=1,
        **ONCE,
    )
