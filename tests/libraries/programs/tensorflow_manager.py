"""TensorFlow's ``tf.train.CheckpointManager`` with ``max_to_keep``, resumed from ``latest_checkpoint``."""

from __future__ import annotations

import moments
import numpy as np
import tensorflow as tf

STEPS, EVERY = 12, 2


class Manager(tf.train.CheckpointManager):
    """Has written data and index when it writes the file ``checkpoint``, which names them."""

    def _record_state(self):
        moments.middle()
        super()._record_state()


random = np.random.default_rng(1)
weights = tf.Variable(random.normal(size=(5, 1)).astype("f"))
optimizer = tf.keras.optimizers.Adam(0.05)
optimizer.build([weights])
step = tf.Variable(0, dtype=tf.int64)
checkpoint = tf.train.Checkpoint(weights=weights, optimizer=optimizer, step=step)
manager = Manager(checkpoint, str(moments.CHECKPOINTS), max_to_keep=3)
checkpoint.restore(manager.latest_checkpoint)
moments.began(int(step))
while int(step) < STEPS:
    step.assign_add(1)
    x = np.random.default_rng(int(step)).normal(size=(16, 5)).astype("f")
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((x @ weights - x.sum(axis=1, keepdims=True)) ** 2)
    optimizer.apply_gradients([(tape.gradient(loss, weights), weights)])
    if int(step) % EVERY == 0:
        moments.saving(int(step))
        manager.save(checkpoint_number=int(step))
        moments.saved(int(step))
moments.finished({"weights": weights.numpy()})
