"""A user's program for tests: writes a curve into TONY_TENSORBOARD_DIR by TensorBoard's own writer.

``python writer.py FIRST LAST``: the loss at the steps before LAST; when the file GO of its environment is there it
writes the last one, and ends with the code that is in the file, if any.
"""

from __future__ import annotations

import os
import sys
import time
import types
from pathlib import Path

# TensorFlow, where there is one, is more than a small container holds.
sys.modules["tensorboard.compat.notf"] = types.ModuleType("tensorboard.compat.notf")


def main(first: int, last: int) -> int:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    writer = EventFileWriter(os.environ["TONY_TENSORBOARD_DIR"])

    def add(step: int) -> None:
        value = Summary.Value(tag="loss", simple_value=10 / step)
        writer.add_event(Event(step=step, wall_time=time.time(), summary=Summary(value=[value])))

    for step in range(first, last):
        add(step)
    writer.flush()
    print("written", flush=True)
    go = Path(os.environ["GO"])
    while not go.exists():
        time.sleep(0.1)
    add(last)
    writer.close()
    return int(go.read_text() or 0)


sys.exit(main(*map(int, sys.argv[1:])))
