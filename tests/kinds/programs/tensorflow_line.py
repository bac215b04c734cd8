"""TensorFlow's MultiWorkerMirroredStrategy in a loop of its own, with checkpoints by a CheckpointManager."""

from __future__ import annotations

import os
import tempfile

import tensorflow as tf
from line import RATE, STEPS, dawdle, leave_result, points

strategy = tf.distribute.MultiWorkerMirroredStrategy()
rank, world_size = int(os.environ["TONY_RANK"]), strategy.num_replicas_in_sync
mine = tf.constant(points(rank, world_size), dtype=tf.float64)
with strategy.scope():
    slope, offset = tf.Variable(0.0, dtype=tf.float64), tf.Variable(0.0, dtype=tf.float64)
    sizes = tf.Variable(tf.zeros(STEPS, tf.int64))  # of the world, for each step
    step = tf.Variable(0, dtype=tf.int64)
    checkpoint = tf.train.Checkpoint(slope=slope, offset=offset, sizes=sizes, step=step)
directory = os.environ["TONY_CHECKPOINT_DIR"]
if latest := tf.train.latest_checkpoint(directory):
    checkpoint.restore(latest).assert_consumed()
begun = int(step.numpy())
# Every worker must take part in saving, and only rank 0's files count.
manager = tf.train.CheckpointManager(checkpoint, directory if rank == 0 else tempfile.mkdtemp(), max_to_keep=3)


def learn() -> None:
    """One step, by the mean gradient over all workers."""
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((slope * mine[:, 0] + offset - mine[:, 1]) ** 2)
    gradients = tape.gradient(loss, [slope, offset])
    means = tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.MEAN, gradients)
    for variable, mean in zip((slope, offset), means, strict=True):
        variable.assign_sub(RATE * mean)


train = tf.function(lambda: strategy.run(learn))
for done in range(begun + 1, STEPS + 1):
    train()
    step.assign(done)
    sizes.assign(tf.tensor_scatter_nd_update(sizes, [[done - 1]], [world_size]))
    dawdle()
    if done % 5 == 0:
        manager.save(checkpoint_number=done)
        print("saved", done, flush=True)
if rank == 0:
    trained = float(slope.numpy()), float(offset.numpy())
    more = {"world_size": world_size, "begun": begun, "sizes": sizes.numpy().tolist()}
    leave_result(*trained, version=tf.__version__, **more)
