"""The file that says what runs of a cluster on this machine."""

from __future__ import annotations

import signal
import threading
import time
from pathlib import Path

from tests.hadoop.config import Layout
from tests.hadoop.processes import Process
from tests.hadoop.settings import Addresses, Settings
from tests.hadoop.state import State


def test_settings_are_the_same_after_they_were_read(tmp_path: Path) -> None:
    settings = Settings(racks=("/one", "/two"), node_attributes=("os=debian",))
    layout = Layout(tmp_path)
    State(settings, Addresses.free(settings), owner=None).write(layout)
    known = State.read(layout)
    assert known is not None
    assert known.settings == settings


def test_a_recorded_process_whose_pid_a_thread_has_now_is_gone() -> None:
    end = threading.Event()
    thread = threading.Thread(target=end.wait)
    thread.start()
    try:
        assert thread.native_id is not None
        process = Process(thread.native_id, started=1)
        process.signal(signal.SIGTERM)
        assert process.wait_gone(time.monotonic() + 60)
    finally:
        end.set()
        thread.join()
