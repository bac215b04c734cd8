"""
### Read handwritten digits

A distributed training from its data to a published model: take the digits that scikit-learn ships, train a small
network on them with several workers at once, measure it on digits that it has not seen, and publish it, if it is
good enough, as the current version. A training that fails goes on from its newest checkpoint when Airflow tries it
again.

The training code is `digits/train.py`, ordinary TensorFlow. The containers need TensorFlow, tf_keras and NumPy in
the environment that the variable `TONY_EXAMPLES_PYTHON_ENV` of Airflow's processes names, else in the one that Airflow
runs in; Airflow's workers need scikit-learn. The rest comes from the connection `tony_default`: on which cluster, and
where data and models are kept.
"""

from __future__ import annotations

from datetime import timedelta
from io import BytesIO

from airflow.sdk import DAG, Asset, Param, get_current_context, task

from tony_examples.form import PUBLISHING, PYTHON_ENV, TRAINING, where_to_run
from tony_examples.publishing import publish
from tony_provider.hooks.tony import TonyHook
from tony_provider.operators.tony import TonyTrainOperator
from tony_provider.runtime.storage.base import write_atomically
from tony_provider.runtime.storage.uris import join

SHARDS = 8  # files that the training data are cut into
MODELS = "digits/models"
MODEL = Asset("digits_model")

PARAMS = {
    "workers": Param(2, type="integer", minimum=1, maximum=4, title="Workers", section=TRAINING),
    "epochs": Param(15, type="integer", minimum=1, maximum=1000, title="Epochs", section=TRAINING),
    "batch_size": Param(
        64, type="integer", minimum=1, title="Batch size", description="Of all workers together.", section=TRAINING
    ),
    "learning_rate": Param(
        0.002, type="number", exclusiveMinimum=0, maximum=1, title="Learning rate", section=TRAINING
    ),
    "warm_start": Param(
        False,
        type="boolean",
        title="Warm start",
        description="Begin with the weights of the newest model that was published for an earlier period.",
        section=TRAINING,
    ),
    "minimum_accuracy": Param(
        0.95,
        type="number",
        minimum=0,
        maximum=1,
        title="Minimum accuracy",
        description="On held-out digits; a model below it is not published.",
        section=PUBLISHING,
    ),
    **where_to_run(),
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
                # `stored:`: a file of the store, whatever the other task returned, and never one of this machine.
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
    publish.override(outlets=[MODEL])(MODELS, train.output, evaluate.output)
