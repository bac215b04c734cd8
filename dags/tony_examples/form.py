"""Parameters that several trigger forms have."""

from __future__ import annotations

import os
import sys

from airflow.sdk import Param

DATA = "The data"
TRAINING = "Training"
PUBLISHING = "Publishing"
CLUSTER = "Cluster"

# What the trainings run in: a directory that every node has, or an archive made by venv-pack or conda-pack. Not in the
# form: whoever fills that in would say which programs run. Default: the environment that Airflow runs in.
PYTHON_ENV = os.environ.get("TONY_EXAMPLES_PYTHON_ENV", sys.prefix)


def where_to_run() -> dict[str, Param]:
    """Of every training."""
    return {
        "queue": Param(
            None,
            type=["null", "string"],
            title="YARN queue",
            description="Default: the connection's.",
            section=CLUSTER,
        ),
    }


def how_to_train(*, epochs: int = 5) -> dict[str, Param]:
    """Of the trainings that learn from clicks."""
    return {
        "epochs": Param(
            epochs,
            type="integer",
            minimum=1,
            maximum=1000,
            title="Epochs",
            description="How often all of the day's clicks are gone through.",
            section=TRAINING,
        ),
        "learning_rate": Param(
            0.05,
            type="number",
            exclusiveMinimum=0,
            maximum=10,
            title="Learning rate",
            description="How far each batch moves the weights.",
            section=TRAINING,
        ),
    }
