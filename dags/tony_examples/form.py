"""Parameters that the trigger forms of several example DAGs share."""

from __future__ import annotations

import os
import sys

from airflow.sdk import Param

DATA = "Data"
TRAINING = "Training"
PUBLISHING = "Publishing"
CLUSTER = "Cluster"

# Environment of the trainings: a directory on all nodes, or an archive of venv-pack or conda-pack. It is not a
# parameter, because a user who may only trigger the DAG must not choose programs. Default: the environment of Airflow.
PYTHON_ENV = os.environ.get("TONY_EXAMPLES_PYTHON_ENV", sys.prefix)


def where_to_run() -> dict[str, Param]:
    """Return the parameters of every training."""
    return {
        "queue": Param(
            None,
            type=["null", "string"],
            title="YARN queue",
            description="Default: the queue of the connection.",
            section=CLUSTER,
        ),
    }


def how_to_train(*, epochs: int = 5) -> dict[str, Param]:
    """Return the parameters of the trainings on clicks. ``epochs`` is a default value."""
    return {
        "epochs": Param(
            epochs,
            type="integer",
            minimum=1,
            maximum=1000,
            title="Epochs",
            description="Number of passes through the clicks of the day.",
            section=TRAINING,
        ),
        "learning_rate": Param(
            0.05,
            type="number",
            exclusiveMinimum=0,
            maximum=10,
            title="Learning rate",
            description="Step size of each weight update.",
            section=TRAINING,
        ),
    }
