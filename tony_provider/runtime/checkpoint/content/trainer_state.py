"""The state file of transformers' Trainer, ``trainer_state.json``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tony_provider.runtime.checkpoint.content.unreadable import Unreadable, is_count, json_object

_MOST_BYTES = 64 << 20  # the log history grows with the training


def global_step(path: Path) -> int:
    """Return the step of the save. Raises Unreadable, OSError."""
    found: Any = json_object(path, _MOST_BYTES).get("global_step")
    if not is_count(found):
        raise Unreadable("it has no global_step")
    return int(found)
