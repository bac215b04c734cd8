"""The same network, trained with ParameterServerStrategy: a chief, one parameter server and one worker.

The chief waits for each step, so that the result is the same in every run.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import diary


def main() -> None:
    diary.note_start()
    # Only now: the imports take seconds, and the process is there already.
    import tensorflow as tf

    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    task = json.loads(os.environ["TF_CONFIG"])["task"]
    if task["type"] == "chief":
        lead(tf, resolver)
        return
    server = tf.distribute.Server(
        resolver.cluster_spec(), job_name=task["type"], task_index=task["index"], protocol="grpc"
    )
    diary.note("serving")  # the chief alone knows of steps
    server.join()  # for ever


def lead(tf: Any, resolver: Any) -> None:
    import network
    import numpy as np

    network.prepare(tf)
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    with strategy.scope():
        model = network.Network(tf, np)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    manager = tf.train.CheckpointManager(model.checkpoint, os.environ["TONY_CHECKPOINT_DIR"], max_to_keep=3)
    begin = model.resume()
    train = tf.function(lambda inputs, labels: strategy.run(model.learn, args=(inputs, labels)))
    diary.note("ready", step=begin)
    for step in range(begin + 1, diary.STEPS + 1):
        ready_at = time.monotonic() + diary.pace()
        coordinator.schedule(train, args=network.examples(np, step, 0))
        coordinator.join()
        model.done.assign(step)
        if step % diary.EVERY == 0:
            manager.save(checkpoint_number=step)
            diary.note("saved", step=step)
        time.sleep(max(0.0, ready_at - time.monotonic()))
        diary.note_step(step)
    np.savez(Path(os.environ["TONY_MODEL_DIR"]) / "weights.npz", **model.weights())
    diary.note("ended", step=diary.STEPS)
    os._exit(0)  # the coordinator's threads wait for workers that never end


if __name__ == "__main__":
    main()
