"""TensorFlow, from the environment of the tests, which need it anyway."""

from __future__ import annotations

import sys

from tests.libraries.row import Row, add

add(
    Row(
        "tensorflow-manager",
        "tensorflow",
        "tf.train.CheckpointManager, max_to_keep",
        "tensorflow_manager",
        (),
        framework="standalone",
        instances=1,
        job={"python_env": sys.prefix},
    )
)
