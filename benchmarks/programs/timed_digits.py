"""The digits training (dags/digits/train.py) with the times of its epochs: `timed_digits.py TIMES EVERY [its options]`.

It saves only after each EVERY epochs. It writes when it began and when each epoch ended, and ends with the last epoch
(benchmarks/overhead.py says why).
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

BEGAN = time.time()
sys.path.insert(0, str(Path.cwd()))  # nodes hold files as links

import tensorflow as tf  # noqa: E402
import tony_sdk  # noqa: E402
import train  # noqa: E402

_LAST = 30.0  # seconds that the others' last epoch is waited for

directory = Path(sys.argv.pop(1))
every = int(sys.argv.pop(1))
config = json.loads(os.environ["TF_CONFIG"])
index = config["task"]["index"]
epochs: list[float] = []
report = train.report


def report_and_note(epoch: int, total: int, *metrics: float) -> None:
    report(epoch, total, *metrics)
    epochs.append(time.time())
    (directory / f"{index}.epochs").write_text(str(len(epochs)))
    if len(epochs) == total:
        end()


class RareSaves(tf.train.CheckpointManager):  # type: ignore[misc]
    def save(self, checkpoint_number: int) -> str:
        return super().save(checkpoint_number) if checkpoint_number % every == 0 else "none"


commit = tony_sdk.commit_checkpoint


def commit_if_saved(step: int, *paths: Path | str) -> bool:
    return step % every == 0 and commit(step, *paths)


def end() -> None:
    """All at once, and without what TensorFlow does then: that now and then takes half a minute, or a whole one."""
    written(index).write_text(json.dumps({"began": BEGAN, "epochs": epochs}))
    while not all(written(each).exists() for each in range(len(config["cluster"]["worker"]))):
        if time.time() > epochs[-1] + _LAST:
            raise TimeoutError("the others have not come to their end")
        time.sleep(0.05)
    sys.stdout.flush()
    os._exit(0)


def written(index: int) -> Path:
    return directory / f"{index}.json"


train.report = report_and_note
tf.train.CheckpointManager = RareSaves
tony_sdk.commit_checkpoint = commit_if_saved
train.main()
