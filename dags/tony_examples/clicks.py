"""What the DAGs about clicks learn from and score, and the job that learns.

The data are made up from the date, so that every day has its own, and always the same.
"""

from __future__ import annotations

from datetime import date
from io import BytesIO
from typing import Any

from airflow.sdk import get_current_context, task

from tony_examples.form import PYTHON_ENV
from tony_provider.hooks.tony import TonyHook
from tony_provider.run_dates import run_date
from tony_provider.runtime.storage.base import write_atomically
from tony_provider.runtime.storage.uris import join

EXAMPLES = {"train": 4000, "held_out": 1000}  # of a day
UNSEEN = 50  # in each shard that is to be scored
FEATURES = 8
# Numbers, to which the form holds them: text of a form would need macros.tony.quote, since a shell reads this.
AS_IN_THE_FORM = "--epochs {{ params.epochs }} --learning-rate {{ params.learning_rate }}"  # of form.how_to_train


@task
def write_clicks() -> dict[str, str]:
    """Write the clicks of this run's day to the job's store: what is learnt from, and what is held out."""
    features, clicked = clicks_of(run_date(get_current_context()["dag_run"]).date())
    with TonyHook() as hook:
        directory = data_directory(hook, "write_clicks")
        begin = 0
        for split, count in EXAMPLES.items():
            part = slice(begin, begin := begin + count)
            write_shard(hook, join(directory, split, "clicks.npz"), features=features[part], clicked=clicked[part])
    return {split: join(directory, split) for split in EXAMPLES}


@task
def write_unseen() -> dict[str, str]:
    """Write what nobody has clicked on yet, in shards; and say where the predictions for it are to be."""
    import numpy as np

    context = get_current_context()
    random = np.random.default_rng(run_date(context["dag_run"]).date().toordinal())
    with TonyHook() as hook:
        directory = data_directory(hook, "write_unseen")
        for number in range(context["params"]["shards"]):
            features = random.normal(size=(UNSEEN, FEATURES))
            write_shard(hook, join(directory, "unseen", f"part-{number:05}.npz"), features=features)
    return {name: join(directory, name) for name in ("unseen", "predictions")}


def data_directory(hook: TonyHook, task_id: str) -> str:
    """The URI of a directory for what this task of this run writes."""
    run = get_current_context()["dag_run"]
    # A run id may hold what paths may not; an identity's name is made for them.
    name = hook.identity(dag_id=run.dag_id, run_id=run.run_id, task_id=task_id).name
    return join(hook.layout.root, run.dag_id, "data", name)


def write_shard(hook: TonyHook, uri: str, **arrays: Any) -> None:
    import numpy as np

    content = BytesIO()
    np.savez(content, **arrays)
    write_atomically(hook.storage(), uri, content.getvalue())


def clicks_of(day: date) -> tuple[Any, Any]:
    """What people were shown, one row each, and whether they clicked. What they like changes slowly, day by day."""
    import numpy as np

    count = sum(EXAMPLES.values())
    random = np.random.default_rng(day.toordinal())
    likes = 2 * np.cos(day.toordinal() / 60 + np.arange(FEATURES))
    features = random.normal(size=(count, FEATURES))
    chances = 1 / (1 + np.exp(1 - features @ likes))
    return features, random.random(count) < chances


def training_job(options: str = AS_IN_THE_FORM) -> dict[str, Any]:
    """A job that learns from what ``write_clicks`` has written. ``options``: see ``clicks/train.py``."""
    return {
        "framework": "standalone",
        "files": [
            "clicks/train.py",
            "clicks/model.py",
            "stored:{{ ti.xcom_pull('write_clicks')['train'] }}::data",
            "stored:{{ ti.xcom_pull('write_clicks')['held_out'] }}::held_out",
        ],
        "python_env": PYTHON_ENV,
        "tasks": {
            "worker": {
                "memory": "512MiB",
                "command": f"python train.py --data data --held-out held_out {options}",
            }
        },
    }
