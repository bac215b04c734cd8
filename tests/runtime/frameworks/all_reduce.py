"""A user's program: every worker gives its number, and each prints the sum."""

from __future__ import annotations

import os

import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()
index = float(os.environ["TONY_TASK_INDEX"])


def add() -> tf.Tensor:
    return tf.distribute.get_replica_context().all_reduce("SUM", tf.constant(index + 1))


print("replicas", strategy.num_replicas_in_sync, "sum", float(strategy.run(tf.function(add))), flush=True)
