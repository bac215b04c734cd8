"""Train on the rows of a day, and on the model of the day before: each byte of both changes the model."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import tony_sdk

weights = hashlib.sha256()
before = tony_sdk.warm_start()
if before is not None:
    weights.update(Path(before, "weights.txt").read_bytes())
for shard in tony_sdk.inputs("rows"):
    weights.update(Path(shard.path).read_bytes())
Path(os.environ["TONY_MODEL_DIR"], "weights.txt").write_text(weights.hexdigest())
