"""
### Recognize handwritten digits with TensorFlow

A distributed training from the data to the published model. Write the digits of scikit-learn to the store, and train a
small network on them with several workers. Measure its accuracy on held-out digits, and publish it if the accuracy is
high enough. If the training fails, Airflow's retry resumes from the newest checkpoint.

The training program is `digits/train.py`. The containers need TensorFlow with Keras 3, and NumPy. Set the variable
`TONY_EXAMPLES_PYTHON_ENV` of Airflow's processes to their environment. By default, the containers use the environment
of Airflow. Airflow's workers need scikit-learn. The connection `tony_default` defines the cluster and the store.
"""

from __future__ import annotations

from datetime import timedelta
from io import BytesIO
from typing import Any

from airflow.sdk import DAG, Asset, Param, get_current_context, task

from tony_examples.form import PUBLISHING, PYTHON_ENV, TRAINING, where_to_run
from tony_provider.operators.tony import TonyTrainOperator
from tony_provider.publishing import publish_model

SHARDS = 8  # files of the training data
MODELS = "digits/models"
MODEL = Asset("digits_model")

PARAMS = {
    "workers": Param(2, type="integer", minimum=1, maximum=4, title="Workers", section=TRAINING),
    "epochs": Param(15, type="integer", minimum=1, maximum=1000, title="Epochs", section=TRAINING),
    "batch_size": Param(
        64,
        type="integer",
        minimum=4,
        title="Batch size",
        description="Images per step, of all workers together.",
        section=TRAINING,
    ),
    "learning_rate": Param(
        0.002, type="number", exclusiveMinimum=0, maximum=1, title="Learning rate", section=TRAINING
    ),
    "warm_start": Param(
        False,
        type="boolean",
        title="Warm start",
        description="Start with the weights of the newest model that was published for an earlier period.",
        section=TRAINING,
    ),
    "minimum_accuracy": Param(
        0.95,
        type="number",
        minimum=0,
        maximum=1,
        title="Minimum accuracy",
        description="Do not publish a model with a lower accuracy on held-out digits.",
        section=PUBLISHING,
    ),
    **where_to_run(),
}


@task
def prepare() -> dict[str, str]:
    """Split the digits, and write them to the store in shards. Return the URIs of the two directories."""
    import numpy as np
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    from tony_provider.hooks.tony import TonyHook

    digits = load_digits()
    train_images, test_images, train_labels, test_labels = train_test_split(
        digits.images.astype("float32"), digits.target, test_size=0.2, stratify=digits.target, random_state=7
    )
    splits = {"train": (train_images, train_labels, SHARDS), "held_out": (test_images, test_labels, 1)}
    run = get_current_context()["dag_run"]
    with TonyHook() as hook:
        # A run ID may contain characters that paths must not contain. The name of an identity is a valid path.
        name = hook.identity(dag_id=run.dag_id, run_id=run.run_id, task_id="prepare").name
        directory = f"{hook.layout.root}/digits/data/{name}"
        for split, (images, labels, shards) in splits.items():
            for index, part in enumerate(np.array_split(np.arange(len(labels)), shards)):
                shard = BytesIO()
                np.savez(shard, images=images[part], labels=labels[part])
                hook.storage().write(f"{directory}/{split}/{index:05}.npz", shard.getvalue(), overwrite=True)
    return {split: f"{directory}/{split}" for split in splits}


@task(outlets=[MODEL])
def publish(trained: Any, evaluated: Any) -> Any:
    """Publish the model as a new version, with the metrics of the evaluation."""
    return publish_model(MODELS, trained, evaluated)


with DAG(
    "digits_train",
    schedule=None,
    max_active_runs=1,
    default_args={"retries": 1, "retry_delay": timedelta(seconds=30)},
    params=PARAMS,
    doc_md=__doc__,
    tags=["tony", "example"],
):
    train = TonyTrainOperator(
        task_id="train",
        yarn_queue="{{ params.queue or '' }}",
        warm_start="{{ macros.tony.newest_model('" + MODELS + "') if params.warm_start else '' }}",
        execution_timeout=timedelta(hours=1),
        job={
            "framework": "tensorflow",
            # `stored:` restricts a file to the store. Otherwise the result of a task could name a file of the worker.
            "files": ["digits/train.py", "stored:{{ ti.xcom_pull('prepare')['train'] }}::data"],
            "python_env": PYTHON_ENV,
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
                "stored:{{ ti.xcom_pull('prepare')['held_out'] }}::data",
                "stored:{{ ti.xcom_pull('train')['model_dir'] }}::model",
            ],
            "python_env": PYTHON_ENV,
            "tasks": {
                "worker": {
                    "memory": "2304MiB",
                    "command": "python evaluate.py --model model --data data"
                    " --minimum-accuracy {{ params.minimum_accuracy }}",
                }
            },
        },
    )

    prepare() >> train >> evaluate
    publish(train.output, evaluate.output)
