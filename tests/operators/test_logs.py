from __future__ import annotations

from pathlib import Path
from unittest import mock

from tony_provider.cluster.training.identity import Identity
from tony_provider.hooks.job import TonyJob
from tony_provider.operators.outcome import TAIL_BYTES, task_log_tail
from tony_provider.runtime.storage.local import LocalStorage


def job(directory: Path) -> TonyJob:
    identity = Identity("x", "0")
    hook = mock.Mock(storage=LocalStorage, layout=mock.Mock(application_dir=lambda *_: str(directory)))
    return TonyJob(hook, "application_1700000000000_0001", identity)


def test_where_nothing_was_kept_there_is_nothing_to_show(tmp_path: Path) -> None:
    assert task_log_tail(job(tmp_path), "worker:0") == ""
    (tmp_path / "logs").mkdir()
    assert task_log_tail(job(tmp_path), "worker:0") == ""


def test_the_end_of_a_long_log_begins_with_a_line(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    lines = [f"line {number}" for number in range(TAIL_BYTES)]
    (tmp_path / "logs" / "worker-0.log").write_text("\n".join(lines))
    tail = task_log_tail(job(tmp_path), "worker:0").splitlines()
    assert tail == lines[-len(tail) :]
