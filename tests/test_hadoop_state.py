"""The file that says what runs of a cluster on this machine."""

from __future__ import annotations

from pathlib import Path

from tests.hadoop.config import Layout
from tests.hadoop.settings import Addresses, Settings
from tests.hadoop.state import State


def test_settings_are_the_same_after_they_were_read(tmp_path: Path) -> None:
    settings = Settings(racks=("/one", "/two"), node_attributes=("os=debian",))
    layout = Layout(tmp_path)
    State(settings, Addresses.free(settings), owner=None).write(layout)
    known = State.read(layout)
    assert known is not None
    assert known.settings == settings
