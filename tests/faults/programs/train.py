"""A small network, trained by two workers with MultiWorkerMirroredStrategy in a loop of its own, with checkpoints."""

from __future__ import annotations

import json
import os
import tempfile
import time
from pathlib import Path

import diary


def main() -> None:
    diary.note_start()
    # Only now: the imports take seconds, and the process is there already.
    import network
    import numpy as np
    import tensorflow as tf

    network.prepare(tf)
    rank = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        model = network.Network(tf, np)
    directory = os.environ["TONY_CHECKPOINT_DIR"]
    if rank != 0:  # every worker must take part in saving, and only one's files count
        directory = tempfile.mkdtemp()
    manager = tf.train.CheckpointManager(model.checkpoint, directory, max_to_keep=3)
    begin = model.resume()
    train = tf.function(lambda inputs, labels: strategy.run(model.learn, args=(inputs, labels)))
    diary.note("ready", step=begin)
    for step in range(begin + 1, diary.STEPS + 1):
        ready_at = time.monotonic() + diary.pace()
        train(*network.examples(np, step, rank))
        model.done.assign(step)
        if step % diary.EVERY == 0:
            manager.save(checkpoint_number=step)
            diary.note("saved", step=step)
        time.sleep(max(0.0, ready_at - time.monotonic()))
        diary.note_step(step)
    np.savez(Path(os.environ["TONY_MODEL_DIR"]) / "weights.npz", **model.weights())
    diary.note("ended", step=diary.STEPS)


if __name__ == "__main__":
    main()
