"""Train a network to read handwritten digits, together with the job's other workers.

Ordinary TensorFlow: MultiWorkerMirroredStrategy finds the others by TF_CONFIG, which the job sets.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import numpy as np
import tensorflow as tf
import tf_keras as keras
import tony_sdk


def load(directory: str) -> tuple[np.ndarray, np.ndarray]:
    shards = [np.load(path) for path in sorted(Path(directory).glob("*.npz"))]
    images = np.concatenate([shard["images"] for shard in shards])
    return images[..., np.newaxis] / 16.0, np.concatenate([shard["labels"] for shard in shards])


def network(learning_rate: float) -> keras.Model:
    model = keras.Sequential(
        [
            keras.layers.Input((8, 8, 1)),
            keras.layers.Conv2D(32, 3, activation="relu"),
            keras.layers.Flatten(),
            keras.layers.Dense(128, activation="relu"),
            keras.layers.Dropout(0.3),
            keras.layers.Dense(10),
        ]
    )
    model.compile(
        optimizer=keras.optimizers.Adam(learning_rate),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    return model


class Report(keras.callbacks.Callback):
    """Tells the job how far it is, and how good."""

    def on_epoch_end(self, epoch: int, logs: dict[str, float]) -> None:
        # A step is an epoch, as in the checkpoints that are saved after each.
        tony_sdk.report(step=epoch + 1, total_steps=self.params["epochs"], **logs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True, help="directory of .npz shards")
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--batch-size", type=int, default=64, help="of all workers together")
    parser.add_argument("--learning-rate", type=float, default=0.002)
    options = parser.parse_args()

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    images, labels = load(options.data)
    batches = tf.data.Dataset.from_tensor_slices((images, labels)).shuffle(len(labels), seed=7).repeat()
    # One file or one array for all: each worker takes its own share of the examples.
    sharding = tf.data.Options()
    sharding.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    batches = batches.batch(options.batch_size).prefetch(tf.data.AUTOTUNE).with_options(sharding)

    with strategy.scope():
        model = network(options.learning_rate)
        if earlier := tony_sdk.warm_start():  # an earlier model, where the DAG names one
            model.load_weights(Path(earlier) / "digits.keras")
    model.fit(
        batches,
        epochs=options.epochs,
        steps_per_epoch=max(1, len(labels) // options.batch_size),
        verbose=2,
        callbacks=[
            # After a failure the directory holds the newest of what this has saved, in another application too.
            keras.callbacks.BackupAndRestore(os.environ["TONY_CHECKPOINT_DIR"], delete_checkpoint=False),
            Report(),
        ],
    )
    # Every worker saves, as the strategy wants it; the job keeps what the first one leaves here.
    model.save(Path(os.environ["TONY_MODEL_DIR"]) / "digits.keras")


if __name__ == "__main__":
    main()
