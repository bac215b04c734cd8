from __future__ import annotations

import threading
from pathlib import Path

from tests.files import files_below


def test_what_lies_below(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "c").touch()
    (tmp_path / "a" / "d").touch()
    (tmp_path / "empty").mkdir()
    assert files_below(tmp_path) == ["a/b/c", "a/d"]
    assert files_below(tmp_path / "nothing") == []


def test_while_directories_come_and_go(tmp_path: Path) -> None:
    stop = threading.Event()

    def come_and_go() -> None:
        while not stop.is_set():
            for n in range(20):
                (tmp_path / f"{n}" / "x").mkdir(parents=True, exist_ok=True)
            for n in range(20):
                (tmp_path / f"{n}" / "x").rmdir()
                (tmp_path / f"{n}").rmdir()

    busy = threading.Thread(target=come_and_go)
    busy.start()
    try:
        for _ in range(300):
            assert files_below(tmp_path) == []
    finally:
        stop.set()
        busy.join()
