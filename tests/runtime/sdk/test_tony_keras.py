"""The callback for Keras, with Keras 3 here; with tf_keras, and two workers in step, in processes of their own."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.runtime.sdk.conftest import environment, reports
from tony_provider.runtime.common import contract
from tony_provider.runtime.sdk import tony_sdk

keras: Any = pytest.importorskip("keras")
np: Any = pytest.importorskip("numpy")

SDK = Path(tony_sdk.__file__).parent
Reports = Callable[[], list[dict[str, Any]]]
X = np.linspace(0, 1, 80, dtype="float32").reshape(20, 4)
Y = X.sum(axis=1)


def network() -> Any:
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse", metrics=["mae"])
    return model


def fit(model: Any, *callbacks: Any, **more: Any) -> None:
    arguments = {"epochs": 3, "batch_size": 2, "verbose": 0, **more}
    model.fit(X, Y, callbacks=list(callbacks), **arguments)


def at(step: int, what: Callable[[], object]) -> Any:
    """A callback that does something after one batch, before the callbacks that come later."""

    class At(keras.callbacks.Callback):  # type: ignore[misc]
        seen = 0

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self.seen += 1
            if self.seen == step:
                what()

    return At()


def interrupt() -> None:
    raise KeyboardInterrupt


def test_steps_epochs_and_metrics_are_reported(in_a_job: Reports) -> None:
    fit(network(), tony_sdk.keras_callback(), validation_data=(X, Y))
    last = in_a_job()[-1]
    assert (last["step"], last["total_steps"], last["epoch"]) == (30, 30, 3)
    assert {"loss", "mae", "val_loss", "val_mae"} <= last.keys()


@pytest.mark.long
def test_data_of_unknown_length(in_a_job: Reports) -> None:
    tf = pytest.importorskip("tensorflow")
    data = tf.data.Dataset.from_tensor_slices((X, Y)).batch(2).filter(lambda *_: True)
    network().fit(data, epochs=3, verbose=0, callbacks=[tony_sdk.keras_callback()])
    told = in_a_job()
    assert any((report["step"], report.get("total_steps")) == (10, 30) for report in told)
    assert (told[-1]["step"], told[-1]["total_steps"]) == (30, 30)


@pytest.mark.long
def test_a_restored_model_counts_on(in_a_job: Reports, tmp_path: Path) -> None:
    backup = tmp_path / "backup"
    with pytest.raises(KeyboardInterrupt):
        fit(network(), keras.callbacks.BackupAndRestore(backup), at(23, interrupt))
    fit(network(), tony_sdk.keras_callback(), keras.callbacks.BackupAndRestore(backup))
    told = in_a_job()
    assert 20 < told[0]["step"] <= 30
    assert (told[0]["total_steps"], told[0]["epoch"]) == (30, 3)


def test_a_checkpoint_when_asked_and_at_each_epochs_end(in_a_job: Reports, tmp_path: Path) -> None:
    found: list[list[str]] = []

    def look() -> None:
        found.append(sorted(path.name for path in (tmp_path / "checkpoints").iterdir()))

    ask = at(14, (tmp_path / "checkpoint-request").touch)
    fit(network(), ask, tony_sdk.keras_callback(checkpoints=True), at(15, look))
    assert found == [["step-10.keras", "step-14.keras"]]
    assert not (tmp_path / "checkpoint-request").exists()
    look()
    assert found[-1] == ["step-20.keras", "step-30.keras"]

    model = keras.models.load_model(tmp_path / "checkpoints" / "step-30.keras")
    fit(model, tony_sdk.keras_callback(), epochs=5, initial_epoch=3)
    assert (in_a_job()[-1]["step"], in_a_job()[-1]["total_steps"]) == (50, 50)


@pytest.mark.long
def test_what_is_not_its_business_is_left_for_the_program(in_a_job: Reports, tmp_path: Path) -> None:
    for name in ("checkpoint-request", "export-request"):
        (tmp_path / name).touch()
    fit(network(), tony_sdk.keras_callback(exports=False))
    assert tony_sdk.checkpoint_requested()
    assert tony_sdk.export_requested()
    assert not list((tmp_path / "checkpoints").iterdir())


@pytest.mark.long
def test_an_export_when_asked(in_a_job: Reports, tmp_path: Path) -> None:
    fit(network(), at(4, (tmp_path / "export-request").touch), tony_sdk.keras_callback())
    exported = tmp_path / "exports" / "step-4" / "model.keras"
    assert keras.models.load_model(exported).predict(X, verbose=0).shape == (20, 1)


def test_outside_a_job_fit_is_as_ever(in_a_job: Reports, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in environment(tmp_path):
        monkeypatch.delenv(name)
    fit(network(), tony_sdk.keras_callback(checkpoints=True, stop=True))
    assert not in_a_job()


TRAIN = """
import os, signal, sys
import numpy as np
import tensorflow as tf
import tony_sdk

keras = tf.keras
x = np.linspace(0, 1, 80, dtype="float32").reshape(20, 4)
strategy = tf.distribute.MultiWorkerMirroredStrategy() if "TF_CONFIG" in os.environ else tf.distribute.get_strategy()
options = tf.data.Options()
options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
data = tf.data.Dataset.from_tensor_slices((x, x.sum(axis=1))).batch(2).repeat().with_options(options)
with strategy.scope():
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.BatchNormalization(), keras.layers.Dense(1)])
    model.compile("sgd", "mse")

class Mischief(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        done = int(self.model.optimizer.iterations.numpy())
        if os.environ["TONY_RANK"] == "0" and done == 12:
            open(os.environ["TONY_CHECKPOINT_REQUEST"], "w").close()
            open(os.environ["TONY_EXPORT_REQUEST"], "w").close()
        if os.environ["TONY_RANK"] == "0" and done == 65:
            os.kill(os.getpid(), signal.SIGTERM)

model.fit(data, epochs=4, steps_per_epoch=40, verbose=0,
          callbacks=[Mischief(), tony_sdk.keras_callback(checkpoints=True, stop=True)])
print(int(model.optimizer.iterations.numpy()), tony_sdk.stopping())
"""


def start(folder: Path, **env: str) -> subprocess.Popen[str]:
    folder.mkdir()
    given = {"PYTHONPATH": str(SDK), "TF_USE_LEGACY_KERAS": "1", "TMPDIR": str(folder), "CUDA_VISIBLE_DEVICES": "-1"}
    return subprocess.Popen(
        [sys.executable, "-c", TRAIN],
        env={"PATH": "/usr/bin:/bin", **given, **environment(folder), **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.long
def test_tf_keras_alone(tmp_path: Path) -> None:
    process = start(tmp_path / "worker")
    out, err = process.communicate(timeout=200)
    assert out.split() == ["65", "True"], err
    assert sorted(path.name for path in (tmp_path / "worker" / "checkpoints").iterdir()) == [
        "step-40.keras",
        "step-65.keras",
    ]
    assert (tmp_path / "worker" / "exports" / "step-12" / "model.keras").exists()
    assert reports(tmp_path / "worker")[-1]["total_steps"] == 160


@pytest.mark.long
def test_workers_in_step_do_everything_after_the_same_batch(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        workers = [f"127.0.0.1:{each.getsockname()[1]}" for each in (one, other)]
    started = []
    for rank in range(2):
        cluster = {"cluster": {"worker": workers}, "task": {"type": "worker", "index": rank}}
        env = {contract.ENV_RANK: str(rank), contract.ENV_WORLD_SIZE: "2", "TF_CONFIG": json.dumps(cluster)}
        started.append(start(tmp_path / f"worker-{rank}", **env))
    try:
        ends = [process.communicate(timeout=300) for process in started]
    finally:
        for process in started:
            process.kill()
    # The leader alone was told to stop, after 65 steps; both did after 70.
    assert [out.split() for out, _ in ends] == [["70", "True"], ["70", "False"]], ends
    names = [sorted(path.name for path in (tmp_path / f"worker-{rank}" / "checkpoints").iterdir()) for rank in range(2)]
    assert names == [["step-40.keras", "step-70.keras"], []]
    assert (tmp_path / "worker-0" / "exports" / "step-20" / "model.keras").exists()
    assert [reports(tmp_path / f"worker-{rank}")[-1]["step"] for rank in range(2)] == [70, 70]
