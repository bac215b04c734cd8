"""Data and training job of the example DAGs about clicks.

The data are generated from the date, so each day always has the same data, which differ from those of other days.
"""

from __future__ import annotations

from datetime import date
from io import BytesIO
from typing import Any

from airflow.sdk import get_current_context, task

from tony_examples.form import PYTHON_ENV
from tony_provider.hooks.tony import TonyHook

DAY = "{{ macros.tony.run_date() | ds }}"  # the date of the run, as the argument of the tasks below
EXAMPLES = {"train": 4000, "held_out": 1000}  # of a day
UNSEEN = 50  # examples in each shard to score
FEATURES = 8
# Options of clicks/train.py from the parameters of form.how_to_train. These are numbers. A text from a form would need
# macros.tony.quote, because a shell reads the command.
OPTIONS = "--epochs {{ params.epochs }} --learning-rate {{ params.learning_rate }}"


@task
def write_clicks(day: str) -> dict[str, str]:
    """Write the clicks of a day to the store, and return the URIs of the training data and the held-out data."""
    features, clicked = clicks_of(date.fromisoformat(day))
    with TonyHook() as hook:
        directory = data_directory(hook, "write_clicks")
        begin = 0
        for split, count in EXAMPLES.items():
            part = slice(begin, begin := begin + count)
            write_shard(hook, f"{directory}/{split}/clicks.npz", features=features[part], clicked=clicked[part])
    return {split: f"{directory}/{split}" for split in EXAMPLES}


@task
def write_unseen(day: str) -> dict[str, str]:
    """Write shards of examples to score to the store. Return their URI, and the URI of the future predictions."""
    import numpy as np

    random = np.random.default_rng(date.fromisoformat(day).toordinal())
    with TonyHook() as hook:
        directory = data_directory(hook, "write_unseen")
        for number in range(get_current_context()["params"]["shards"]):
            features = random.normal(size=(UNSEEN, FEATURES))
            write_shard(hook, f"{directory}/unseen/part-{number:05}.npz", features=features)
    return {name: f"{directory}/{name}" for name in ("unseen", "predictions")}


def data_directory(hook: TonyHook, task_id: str) -> str:
    """Return the URI of the directory for the data that a task of this run writes."""
    run = get_current_context()["dag_run"]
    # A run ID may contain characters that paths must not contain. The name of an identity is a valid path.
    name = hook.identity(dag_id=run.dag_id, run_id=run.run_id, task_id=task_id).name
    return f"{hook.layout.root}/{run.dag_id}/data/{name}"


def write_shard(hook: TonyHook, uri: str, **arrays: Any) -> None:
    """Write arrays to a file of NumPy, and replace an existing file."""
    import numpy as np

    content = BytesIO()
    np.savez(content, **arrays)
    hook.storage().write(uri, content.getvalue(), overwrite=True)


def clicks_of(day: date) -> tuple[Any, Any]:
    """Return the features of the examples, one row each, and whether each was clicked. Preferences change slowly."""
    import numpy as np

    count = sum(EXAMPLES.values())
    random = np.random.default_rng(day.toordinal())
    preferences = 2 * np.cos(day.toordinal() / 60 + np.arange(FEATURES))
    features = random.normal(size=(count, FEATURES))
    probabilities = 1 / (1 + np.exp(1 - features @ preferences))
    return features, random.random(count) < probabilities


def training_job(options: str = OPTIONS) -> dict[str, Any]:
    """Return a job that trains on the data of the task ``write_clicks``, with ``options`` of ``clicks/train.py``."""
    return {
        "framework": "standalone",
        "files": [
            "clicks/train.py",
            "clicks/model.py",
            # `stored:` restricts a file to the store. Otherwise the result of a task could name a file of the worker.
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
