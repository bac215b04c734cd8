"""Hints for failures of user programs that many meet, recognised by their last words."""

from __future__ import annotations

import re

import attrs


@attrs.frozen
class _Known:
    words: re.Pattern[str]
    hint: str


_KNOWN = (
    _Known(
        re.compile(r"tensorflow\.python\.distribute\.values\.PerReplica'>\) to a Tensor"),
        "Keras 3 does not train under this strategy: set TF_USE_LEGACY_KERAS=1 in the job's env and have tf_keras in "
        "its environment, or write the training loop with strategy.run",
    ),
)


def hint(last_words: str) -> str:
    """What to do about a failure with these last words of its process; empty when nothing is known of it."""
    return next((known.hint for known in _KNOWN if known.words.search(last_words)), "")
