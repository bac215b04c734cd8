"""Train a network that recognizes handwritten digits, together with the other workers of the job.

MultiWorkerMirroredStrategy finds the other workers by TF_CONFIG, which the job sets. The training loop calls
``strategy.run``, because ``fit`` of Keras 3 does not support this strategy.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
import tony_sdk


def load(directory: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the images and the labels of all shards."""
    shards = [np.load(path) for path in sorted(Path(directory).glob("*.npz"))]
    images = np.concatenate([shard["images"] for shard in shards])
    return images[..., np.newaxis] / 16.0, np.concatenate([shard["labels"] for shard in shards])


def network() -> keras.Model:
    """Return a network without trained weights."""
    return keras.Sequential(
        [
            keras.layers.Input((8, 8, 1)),
            keras.layers.Conv2D(32, 3, activation="relu"),
            keras.layers.Flatten(),
            keras.layers.Dense(128, activation="relu"),
            keras.layers.Dense(10),
        ]
    )


def report(epoch: int, epochs: int, loss: float, accuracy: float) -> None:
    """Report a completed epoch. A step is an epoch, as in the checkpoints."""
    tony_sdk.report(step=epoch, total_steps=epochs, loss=loss, accuracy=accuracy)
    print(f"epoch {epoch} of {epochs}: loss {loss:.4f}, accuracy {accuracy:.4f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True, help="directory of .npz shards")
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--batch-size", type=int, default=64, help="of all workers together")
    parser.add_argument("--learning-rate", type=float, default=0.002)
    options = parser.parse_args()

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    images, labels = load(options.data)
    data = tf.data.Dataset.from_tensor_slices((images, labels)).shuffle(len(labels), seed=7).repeat()
    # Every worker has all examples, so each worker trains on its part of them.
    sharding = tf.data.Options()
    sharding.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    data = data.batch(options.batch_size).prefetch(tf.data.AUTOTUNE).with_options(sharding)
    batches = iter(strategy.experimental_distribute_dataset(data))

    with strategy.scope():
        model = network()
        if earlier := tony_sdk.warm_start():
            model.load_weights(Path(earlier) / "digits.keras")
        optimizer = keras.optimizers.Adam(options.learning_rate)
        optimizer.build(model.trainable_variables)
        epochs_done = tf.Variable(0, dtype=tf.int64)
    variables = [variable.value for variable in (*model.variables, *optimizer.variables)]
    checkpoint = tf.train.Checkpoint(epochs_done=epochs_done, variables=variables)
    directory = os.environ["TONY_CHECKPOINT_DIR"]
    if newest := tf.train.latest_checkpoint(directory):  # after a failure, also in a new application
        checkpoint.restore(newest).assert_consumed()
    # All workers take part in each save, but only the files of the first worker are needed.
    is_first = not strategy.cluster_resolver.task_id
    manager = tf.train.CheckpointManager(checkpoint, directory if is_first else tempfile.mkdtemp(), max_to_keep=2)

    def learn(images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        """Train on the worker's part of a batch. Return the shares of this part in the loss and the accuracy."""
        with tf.GradientTape() as tape:
            scores = model(images, training=True)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, scores)
            loss = tf.reduce_sum(losses) / options.batch_size  # the optimizer adds the gradients of all workers
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply(gradients, model.trainable_variables)
        right = tf.cast(tf.equal(tf.argmax(scores, axis=1), labels), tf.float32)
        return tf.stack([loss, tf.reduce_sum(right) / options.batch_size])

    @tf.function
    def train(batch: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        return strategy.reduce(tf.distribute.ReduceOp.SUM, strategy.run(learn, args=batch), axis=None)

    steps = max(1, len(labels) // options.batch_size)
    for epoch in range(int(epochs_done.numpy()) + 1, options.epochs + 1):
        loss, accuracy = np.mean([train(next(batches)).numpy() for _ in range(steps)], axis=0)
        epochs_done.assign(epoch)
        saved = Path(manager.save(checkpoint_number=epoch))
        if is_first:  # an epoch may take less than a second, so the job cannot know when a save is complete
            tony_sdk.commit_checkpoint(epoch, *saved.parent.glob(f"{saved.name}.*"), "checkpoint")
        report(epoch, options.epochs, float(loss), float(accuracy))
    # Every worker saves the model, and the job stores the files of the first worker.
    model.save(Path(os.environ["TONY_MODEL_DIR"]) / "digits.keras")


if __name__ == "__main__":
    main()
