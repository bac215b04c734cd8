"""
### Read handwritten digits

Every week: take the digits that scikit-learn ships, train a small network on them with several workers at once, measure
it on digits that it has not seen, and publish it, if it is good enough, as the current version. A training that fails
goes on from its newest checkpoint when Airflow tries it again.

The training code is `digits/train.py`, ordinary TensorFlow. The containers need TensorFlow, tf_keras and NumPy in the
environment that the parameter *Python environment* names (its default can be set by the variable `DIGITS_PYTHON_ENV` of
Airflow's processes); Airflow's workers need scikit-learn. The rest comes from the connection `tony_default`: on which
cluster, and where data and models are kept.
"""

from __future__ import annotations

import json
import os
import sys
from datetime import datetime, timedelta
from io import BytesIO
from itertools import count
from typing import Any

from airflow.sdk import DAG, Param, get_current_context, task

from tony_provider.hooks.tony import TonyHook
from tony_provider.operators.tony import TonyTrainOperator
from tony_provider.runtime.storage.base import Storage
from tony_provider.runtime.storage.errors import StorageExists
from tony_provider.runtime.storage.helpers import read_bytes, walk, write_atomically
from tony_provider.runtime.storage.uris import join

SHARDS = 8  # files that the training data are cut into

PARAMS = {
    "workers": Param(2, type="integer", minimum=1, maximum=4, title="Workers", section="Training"),
    "epochs": Param(15, type="integer", minimum=1, maximum=1000, title="Epochs", section="Training"),
    "batch_size": Param(
        64, type="integer", minimum=1, title="Batch size", description="Of all workers together.", section="Training"
    ),
    "learning_rate": Param(
        0.002, type="number", exclusiveMinimum=0, maximum=1, title="Learning rate", section="Training"
    ),
    "warm_start": Param(
        False,
        type="boolean",
        title="Warm start",
        description="Begin with the weights of the newest model that was published for an earlier period.",
        section="Training",
    ),
    "minimum_accuracy": Param(
        0.95,
        type="number",
        minimum=0,
        maximum=1,
        title="Minimum accuracy",
        description="On held-out digits; a model below it is not published.",
        section="Publishing",
    ),
    "python_env": Param(
        os.environ.get("DIGITS_PYTHON_ENV", sys.prefix),
        type="string",
        minLength=1,
        title="Python environment",
        description="With TensorFlow, tf_keras and NumPy: a directory that every node has, or an archive made by "
        "venv-pack or conda-pack. Default: the one that Airflow runs in.",
        section="Cluster",
    ),
    "queue": Param(
        None,
        type=["null", "string"],
        title="YARN queue",
        description="Default: the connection's.",
        section="Cluster",
    ),
}


@task
def prepare() -> dict[str, str]:
    """Split the digits and write them as shards to the job's store."""
    import numpy as np
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    digits = load_digits()
    train_images, test_images, train_labels, test_labels = train_test_split(
        digits.images.astype("float32"), digits.target, test_size=0.2, stratify=digits.target, random_state=7
    )
    splits = {"train": (train_images, train_labels, SHARDS), "held_out": (test_images, test_labels, 1)}
    run = get_current_context()["dag_run"]
    with TonyHook() as hook:
        # A run id may hold what paths may not; an identity's name is made for them.
        name = hook.identity(dag_id=run.dag_id, run_id=run.run_id, task_id="prepare").name
        directory = join(hook.layout.root, "digits", "data", name)
        for split, (images, labels, shards) in splits.items():
            for index, part in enumerate(np.array_split(np.arange(len(labels)), shards)):
                shard = BytesIO()
                np.savez(shard, images=images[part], labels=labels[part])
                write_atomically(hook.storage(), join(directory, split, f"{index:05}.npz"), shard.getvalue())
    return {split: join(directory, split) for split in splits}


@task
def publish(trained: Any, evaluated: Any) -> dict[str, Any]:
    """Keep the model as a version of its own, then make it the current one, in one step."""
    run = get_current_context()["dag_run"]
    with TonyHook() as hook:
        storage, models = hook.storage(), join(hook.layout.root, "digits", "models")
        version = {
            "metrics": evaluated["metrics"],
            # What the model was made for; a run that was triggered by hand has no interval, but a time.
            "period_start": run.data_interval_start.isoformat() if run.data_interval_start else None,
            "period_end": (run.data_interval_end or run.run_after).isoformat(),
            "run_id": run.run_id,
            "application_id": trained["application_id"],
        }
        version |= new_version(storage, join(models, "versions"), run.run_id)
        for file in walk(storage, trained["model_dir"]):
            if not file.is_directory:
                name = file.path.removeprefix(trained["model_dir"]).strip("/")
                with storage.open_read(file.path) as source:
                    storage.write(join(version["model_dir"], name), source)
        # Now that all of the model is there: macros.tony.newest_model takes a version for published by this file.
        about = join(models, "versions", str(version["version"]), "version.json")
        write_atomically(storage, about, json.dumps(version, indent=2).encode())

        current = join(models, "current.json")
        if storage.exists(current):
            published = json.loads(read_bytes(storage, current))
            if published["period_end"] > version["period_end"]:
                print(f"Version {published['version']} stays the current one: it is of a later period")
                return version
        write_atomically(storage, current, json.dumps(version, indent=2).encode())
        print(f"Version {version['version']} is the current one: {version['model_dir']}")
    return version


def new_version(storage: Storage, versions: str, run_id: str) -> dict[str, Any]:
    """The next free number, and the place for its model. Of several runs that want one number exactly one gets it."""
    storage.make_directories(versions)
    taken = [int(directory.name) for directory in storage.list(versions) if directory.name.isdigit()]
    for number in count(max(taken, default=0) + 1):
        directory = join(versions, str(number))
        try:
            storage.write(join(directory, "taken-by"), run_id.encode())
        except StorageExists:
            continue
        return {"version": number, "model_dir": join(directory, "model")}
    raise AssertionError("there is always a next number")


with DAG(
    "digits_train",
    schedule="@weekly",
    start_date=datetime(2026, 1, 1),
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 1, "retry_delay": timedelta(seconds=30)},
    params=PARAMS,
    doc_md=__doc__,
    tags=["tony", "example"],
):
    train = TonyTrainOperator(
        task_id="train",
        yarn_queue="{{ params.queue or '' }}",
        warm_start="{{ macros.tony.newest_model('digits/models') if params.warm_start else '' }}",
        execution_timeout=timedelta(hours=1),
        job={
            "framework": "tensorflow",
            "files": ["digits/train.py", "{{ ti.xcom_pull('prepare')['train'] }}::data"],
            "python_env": "{{ params.python_env }}",
            "tasks": {
                "worker": {
                    "instances": "{{ params.workers }}",
                    "memory": "2304MiB",
                    "command": "python train.py --data data --epochs {{ params.epochs }}"
                    " --batch-size {{ params.batch_size }} --learning-rate {{ params.learning_rate }}",
                }
            },
        },
    )

    evaluate = TonyTrainOperator(
        task_id="evaluate",
        yarn_queue="{{ params.queue or '' }}",
        execution_timeout=timedelta(minutes=15),
        job={
            "framework": "standalone",
            "files": [
                "digits/evaluate.py",
                "{{ ti.xcom_pull('prepare')['held_out'] }}::data",
                "{{ ti.xcom_pull('train')['model_dir'] }}::model",
            ],
            "python_env": "{{ params.python_env }}",
            "tasks": {
                "worker": {
                    "memory": "2304MiB",
                    "command": "python evaluate.py --model model --data data"
                    " --minimum-accuracy {{ params.minimum_accuracy }}",
                }
            },
        },
    )

    prepare() >> train >> evaluate >> publish(train.output, evaluate.output)
