"""Scalars of event files: of TensorFlow, Keras and tensorboard's own writer here; PyTorch's by Debian's Python."""

from __future__ import annotations

import os
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kinds.environments import has_torch, trainers_environment
from tony_provider.runtime.common.binary import InvalidMessage
from tony_provider.runtime.executor.progress import EventScalars, ProcessProgress, ProgressReader, read_scalars
from tony_provider.runtime.protocol import tony_pb2

tf: Any = pytest.importorskip("tensorflow")

NAME = "events.out.tfevents.1.host"


def write(folder: Path, first: int = 0, steps: int = 10) -> Path:
    """An event file of TensorFlow 2: scalars, and much that is none."""
    writer = tf.summary.create_file_writer(str(folder))
    with writer.as_default():
        for step in range(first, first + steps):
            tf.summary.scalar("loss", 1 / (step + 1), step)
            tf.summary.scalar("accuracy", tf.constant(step / 100, tf.float64), step)
            tf.summary.histogram("weights", tf.random.normal((100,)), step)
            tf.summary.text("words", "many", step)
            if step == first + 1:
                tf.summary.image("large", tf.random.uniform((1, 160, 160, 3)), step)
    writer.close()
    (file,) = folder.glob("events.*")
    return file


def plain(progress: tony_pb2.Progress | None) -> tuple[int, dict[str, float]] | None:
    return None if progress is None else (progress.step, dict(progress.metrics))


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return write(tmp_path_factory.mktemp("events")).read_bytes()


def test_the_newest_scalars_count(tmp_path: Path) -> None:
    events = EventScalars(tmp_path)
    assert events.poll(0) is None
    write(tmp_path)
    progress = events.poll(1)
    assert progress is not None
    assert progress.step == 9
    assert dict(progress.metrics) == pytest.approx({"loss": 0.1, "accuracy": 0.09})
    write(tmp_path / "validation", first=10)
    progress = events.poll(2)
    assert progress is not None
    assert progress.step == 19
    assert dict(progress.metrics)["validation/loss"] == pytest.approx(0.05)
    assert progress.steps_per_second == 10


@pytest.mark.long
def test_keras_writes_such_files(tmp_path: Path) -> None:
    keras = pytest.importorskip("keras")
    model = keras.Sequential([keras.layers.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    events = EventScalars(tmp_path)
    data = tf.data.Dataset.from_tensor_slices((tf.ones((8, 1)), tf.ones((8, 1)))).batch(2)
    board = keras.callbacks.TensorBoard(tmp_path, update_freq=1)
    model.fit(data, validation_data=data, epochs=3, verbose=0, callbacks=[board])
    progress = events.poll(0)
    assert progress is not None
    assert progress.step == 12
    assert {"train/epoch_loss", "validation/epoch_loss"} <= dict(progress.metrics).keys()


@pytest.mark.skipif(not has_torch(), reason="Debian's python3-torch is not installed")
@pytest.mark.long
def test_pytorch_writes_such_files(tmp_path: Path) -> None:
    events = EventScalars(tmp_path)
    program = """
import sys
from torch.utils.tensorboard import SummaryWriter
for style, name in ((False, "plain"), (True, "tensor")):
    with SummaryWriter(sys.argv[1]) as writer:
        for step in range(30):
            writer.add_scalar(name, step / 2, step, new_style=style)
            writer.add_text("words", "many", step)
"""
    python = trainers_environment() / "bin" / "python"
    subprocess.run([python, "-c", program, tmp_path], check=True, timeout=200)
    assert plain(events.poll(0)) == (29, {"plain": 14.5, "tensor": 14.5})


@settings(max_examples=20)
@given(data=st.data())
def test_a_file_that_grows_in_any_pieces_says_the_same(
    written: bytes, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("cut")
    events = EventScalars(folder)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(written)), max_size=6)))
    steps = []
    with (folder / NAME).open("ab") as file:
        for begin, end in zip([0, *cuts], [*cuts, len(written)], strict=True):
            file.write(written[begin:end])
            file.flush()
            progress = events.poll(0)
            steps.append(progress.step if progress else -1)
    assert steps == sorted(steps)
    progress = events.poll(0)
    assert progress is not None
    assert progress.step == 9
    assert dict(progress.metrics) == pytest.approx({"loss": 0.1, "accuracy": 0.09})


@settings(max_examples=20)
@given(data=st.data())
def test_damage_is_no_more_than_a_curve_that_ends(
    written: bytes, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("damaged")
    events = EventScalars(folder)
    damaged = bytearray(written)
    for at in data.draw(st.lists(st.integers(0, len(written) - 1), max_size=5)):
        damaged[at] ^= data.draw(st.integers(1, 255))
    (folder / NAME).write_bytes(damaged)
    events.poll(0)


@given(st.binary(max_size=200))
def test_any_bytes_are_scalars_or_an_error(record: bytes) -> None:
    with suppress(InvalidMessage):
        list(read_scalars(record))


def test_what_a_former_process_has_left_is_not_this_ones(tmp_path: Path) -> None:
    write(tmp_path, first=100)
    events = EventScalars(tmp_path)
    assert events.poll(0) is None
    write(tmp_path / "again")
    progress = events.poll(1)
    assert progress is not None
    assert progress.step == 9


def test_however_much_former_processes_have_left_this_one_is_read(tmp_path: Path, written: bytes) -> None:
    for start in range(60):
        (tmp_path / f"{NAME}.{start}").write_bytes(written)
    events = EventScalars(tmp_path)
    with (tmp_path / f"{NAME}.7").open("ab") as file:
        file.write(write(tmp_path / "elsewhere", first=50).read_bytes())
    progress = events.poll(0)
    assert progress is not None
    assert progress.step == 59
    assert {"loss", "elsewhere/loss"} <= dict(progress.metrics).keys()


def test_files_of_another_process_are_not_this_ones(tmp_path: Path) -> None:
    events = EventScalars(tmp_path, [tmp_path / "process-1"])
    write(tmp_path / "process-1")
    assert events.poll(0) is None
    write(tmp_path / "process-12", steps=3)
    assert plain(events.poll(1)) is not None


def test_no_look_reads_more_than_its_share(tmp_path: Path) -> None:
    events = EventScalars(tmp_path)
    writer = tf.summary.create_file_writer(str(tmp_path))
    with writer.as_default():
        for step in range(300):
            tf.summary.text("words", "x" * 8000, step)  # small enough to be looked at
            tf.summary.scalar("loss", 0.5, step)
    writer.close()
    seen = [progress.step for now in range(4) if (progress := events.poll(now)) is not None]
    assert seen[0] < seen[1] < seen[2] == seen[3] == 299


def test_links_and_pipes_are_left_alone(tmp_path: Path, written: bytes) -> None:
    (tmp_path / "outside").write_bytes(written)
    folder = tmp_path / "events"
    folder.mkdir()
    (folder / NAME).symlink_to(tmp_path / "outside")
    os.mkfifo(folder / f"{NAME}.pipe")
    assert EventScalars(folder).poll(0) is None


def test_own_reports_count_alone(tmp_path: Path, written: bytes) -> None:
    metrics = tmp_path / "metrics.jsonl"
    progress = ProcessProgress(ProgressReader(metrics), EventScalars(tmp_path))
    (tmp_path / NAME).write_bytes(written)
    assert progress.reported(0) is None
    seen = plain(progress.poll(0))
    assert seen is not None
    assert seen[0] == 9
    metrics.write_text('{"step": 3, "own": 1}\n')
    assert plain(progress.poll(1)) == (3, {"own": 1.0})


def test_parameters_alone_do_not_replace_event_files(tmp_path: Path, written: bytes) -> None:
    file = tmp_path / "metrics.jsonl"
    progress = ProcessProgress(ProgressReader(file), EventScalars(tmp_path / "events"))
    file.write_text('{"parameters": {"lr": 0.1}}\n')
    assert progress.poll(0) is None
    (tmp_path / "events").mkdir()
    (tmp_path / "events" / "events.out.tfevents.1").write_bytes(written)
    assert progress.poll(1) is not None
    assert progress.reports.parameters == {"lr": "0.1"}
