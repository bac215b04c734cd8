"""Writes real checkpoints of TensorFlow, tf_keras and Keras 3 below the directory given; or checks that they load.

A script of its own, since TensorFlow takes seconds to import and does not belong into the tests' process.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = ""

import numpy as np
import tensorflow as tf
import tf_keras

keras = tf.keras  # version 3

EPOCHS = 3
X, Y = np.ones((8, 2), "float32"), np.ones((8, 1), "float32")


class Interrupted(Exception):
    pass


def interrupt(library: Any, epoch: int) -> Any:
    class Interrupt(library.callbacks.Callback):  # type: ignore[misc]
        def on_epoch_begin(self, number: int, logs: object = None) -> None:
            if number == epoch:
                raise Interrupted

    return Interrupt()


def model(library: Any) -> Any:
    made = library.Sequential([library.layers.InputLayer((2,)), library.layers.Dense(1)])
    made.compile("adam", "mse")
    return made


def fit(library: Any, made: Any, *callbacks: Any) -> None:
    with suppress(Interrupted):
        made.fit(X, Y, epochs=EPOCHS + 2, verbose=0, callbacks=[*callbacks, interrupt(library, EPOCHS)])


def checkpoint() -> Any:
    return tf.train.Checkpoint(
        step=tf.Variable(0), weights=tf.Variable(tf.zeros([20, 10])), name=tf.Variable("a text"), more=tf.Variable(2.0)
    )


def write(root: Path) -> None:
    tracked = checkpoint()
    manager = tf.train.CheckpointManager(tracked, str(root / "manager"), max_to_keep=2)
    for step in (10, 20, 30):
        tracked.step.assign(step)
        manager.save(checkpoint_number=step)

    parts = [str(root / f"sharded_bundle/ckpt-7_temp/part-0000{number}-of-00002") for number in range(2)]
    Path(parts[0]).parent.mkdir(parents=True)
    for number, part in enumerate(parts):
        tf.raw_ops.SaveV2(
            prefix=part, tensor_names=[f"v{number}"], shape_and_slices=[""], tensors=[tf.ones([30]) * number]
        )
    tf.raw_ops.MergeV2Checkpoints(checkpoint_prefixes=parts, destination_prefix=str(root / "sharded_bundle/ckpt-7"))

    fit(
        tf_keras,
        model(tf_keras),
        tf_keras.callbacks.BackupAndRestore(str(root / "tf_keras_backup")),
        tf_keras.callbacks.ModelCheckpoint(
            str(root / "tf_keras_weights/weights.{epoch:02d}-{loss:.2f}"), save_weights_only=True
        ),
        tf_keras.callbacks.ModelCheckpoint(str(root / "tf_keras_archives/archive-{epoch:02d}.keras")),
        tf_keras.callbacks.ModelCheckpoint(str(root / "saved_models/saved-{epoch:02d}"), save_format="tf"),
    )
    fit(
        keras,
        model(keras),
        keras.callbacks.BackupAndRestore(str(root / "keras_backup"), double_checkpoint=True),
        keras.callbacks.ModelCheckpoint(str(root / "keras_archives/archive-{epoch:02d}.keras")),
        keras.callbacks.ModelCheckpoint(
            str(root / "keras_weights/epoch-{epoch:02d}.weights.h5"), save_weights_only=True
        ),
    )


def check(root: Path) -> None:
    """That what lies below the directories of ``write`` is what these libraries go on from."""
    tracked = checkpoint()
    newest = tf.train.latest_checkpoint(str(root / "manager"))
    tracked.restore(newest).assert_consumed()
    print("manager", Path(newest).name, int(tracked.step))
    print("sharded", sorted(name for name, _ in tf.train.list_variables(str(root / "sharded_bundle/ckpt-7"))))
    for library, directory in ((tf_keras, "tf_keras_backup"), (keras, "keras_backup")):
        made = model(library)
        history = made.fit(
            X, Y, epochs=EPOCHS + 2, verbose=0, callbacks=[library.callbacks.BackupAndRestore(str(root / directory))]
        )
        print(directory, history.epoch)
    print("archive", keras.models.load_model(root / "keras_archives" / "archive-03.keras").count_params())


if __name__ == "__main__":
    {"write": write, "check": check}[sys.argv[1]](Path(sys.argv[2]))
