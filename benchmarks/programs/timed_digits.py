"""The digits training (dags/digits/train.py) with the times of its epochs: `timed_digits.py TIMES [its options]`.

Beside that program's own directory of a task it writes when it began, and when each epoch ended. No model is
saved at the end (benchmarks/overhead.py says why).
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

BEGAN = time.time()
sys.path.insert(0, str(Path.cwd()))  # nodes hold files as links

import train  # noqa: E402

directory = Path(sys.argv.pop(1))
index = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
epochs: list[float] = []
report = train.Report.on_epoch_end


def on_epoch_end(self: Any, epoch: int, logs: dict[str, float]) -> None:
    report(self, epoch, logs)
    epochs.append(time.time())
    (directory / f"{index}.epochs").write_text(str(len(epochs)))


train.Report.on_epoch_end = on_epoch_end
train.keras.Model.save = lambda *_, **__: None
train.main()
(directory / f"{index}.json").write_text(json.dumps({"began": BEGAN, "epochs": epochs}))
