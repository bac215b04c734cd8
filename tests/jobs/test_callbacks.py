"""Programs as tutorials have them, in real jobs on this machine: with one line added, and with event files only."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
import requests

from tests.jobs.places import LocalPlace
from tests.waiting import until
from tony_provider.runtime.protocol import master_files
from tony_provider.runtime.protocol.status import JobState, TaskProgress

FORECAST = re.compile(r"about \d[^<]* left")
LOOP = """
import os, time
import tony_sdk
steps = tony_sdk.track(range(100_000), resume=True, stop=True)
for step in steps:
    steps.report(loss=1 / (step + 1))
    time.sleep(0.01)
print("stopped by itself", steps.stopped, flush=True)
"""
CURVES = """
import os, time
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter
writer = EventFileWriter(os.environ["TONY_TENSORBOARD_DIR"], flush_secs=1)
step = 0
while not os.path.exists("go"):
    step += 1
    value = Summary.Value(tag="loss", simple_value=1 / step)
    writer.add_event(Event(step=step, wall_time=time.time(), summary=Summary(value=[value])))
    writer.flush()
    time.sleep(0.02)
"""
KERAS = """
import time
import keras
import numpy as np
import tony_sdk
x = np.random.default_rng(7).uniform(size=(2000, 28, 28)).astype("float32")
y = (x.mean(axis=(1, 2)) * 10).astype("int32")
model = keras.Sequential([keras.layers.Flatten(), keras.layers.Dense(128, activation="relu"), keras.layers.Dense(10)])
model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
slow = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: time.sleep(0.05))
model.fit(x, y, epochs=200, verbose=0, validation_split=0.1, callbacks=[slow, tony_sdk.keras_callback()])
"""


def job_of(program: str, folder: Path, **more: object) -> dict[str, object]:
    (folder / "train.py").write_text(program)
    environment = str(Path(sys.executable).parents[1])
    worker = {"instances": 1, "memory": "2GiB", "command": "python train.py", **more}
    return {"python_env": environment, "files": [str(folder / "train.py")], "tasks": {"worker": worker}}


def page_of(place: LocalPlace, job_id: str, url: str | None) -> str:
    secret = master_files.read_tracking_secret(place.root / "cluster" / "applications" / job_id)
    return requests.get(f"{url}", auth=("anybody", secret or ""), headers={"Accept": "text/html"}, timeout=20).text


@pytest.mark.long
def test_a_loop_and_event_files_are_on_the_page_and_the_loop_ends_when_told(local: LocalPlace, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    (tmp_path / "curves.py").write_text(CURVES)
    spec = job_of(
        LOOP, tmp_path, instances=2, command="test $TONY_TASK_INDEX = 0 || exec python curves.py; python train.py"
    )
    job = local.submit({**spec, "files": [str(tmp_path / "train.py"), str(tmp_path / "curves.py")]})
    job.until(JobState.RUNNING)
    url = job.application().tracking_url
    page = until(lambda: text if FORECAST.search(text := page_of(local, job.id, url)) else None, job.describe)
    assert "of 100,000" in page
    until(lambda: {"loss", "input_wait"} <= job.status().metrics.keys(), job.describe)

    def by_event_files() -> TaskProgress | None:
        progress = job.task("worker:1").progress
        return progress if progress and progress.step > 10 and progress.steps_per_second else None

    assert 0 < until(by_event_files, job.describe).metrics["loss"] < 0.2
    page = until(lambda: text if "Disk write rate of" in (text := page_of(local, job.id, url)) else None, job.describe)
    assert "GPU" not in page  # nobody has measured any

    job.hook.kill(job.id, "its test is over")
    job.end()
    assert "stopped by itself True" in job.log("worker:0").splitlines()
    assert job.status().state is JobState.KILLED


@pytest.mark.long
def test_a_keras_script_with_only_the_callback_added(local: LocalPlace, tmp_path: Path) -> None:
    pytest.importorskip("keras")
    job = local.submit(job_of(KERAS, tmp_path))
    job.until(JobState.RUNNING)
    url = job.application().tracking_url
    page = until(lambda: text if "val_loss" in (text := page_of(local, job.id, url)) else None, job.describe)
    assert FORECAST.search(page)
    for part in ("of 11,400", "steps/s", "accuracy", "val_accuracy", "epoch"):
        assert part in page
