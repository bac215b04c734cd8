from __future__ import annotations

from pathlib import Path

from tony_provider.operators.outcome import TAIL_BYTES, task_log_tail
from tony_provider.runtime.storage.local import LocalStorage


def test_where_nothing_was_kept_there_is_nothing_to_show(tmp_path: Path) -> None:
    assert task_log_tail(LocalStorage(), str(tmp_path), "worker:0") == ""
    (tmp_path / "logs").mkdir()
    assert task_log_tail(LocalStorage(), str(tmp_path), "worker:0") == ""


def test_the_end_of_a_long_log_begins_with_a_line(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    lines = [f"line {number}" for number in range(TAIL_BYTES)]
    (tmp_path / "logs" / "worker-0.log").write_text("\n".join(lines))
    tail = task_log_tail(LocalStorage(), str(tmp_path), "worker:0").splitlines()
    assert tail == lines[-len(tail) :]
