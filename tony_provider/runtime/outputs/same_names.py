"""The names of files that are to lie beside each other: no two may be the same."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable

from tony_provider.runtime.outputs.publish_error import PublishError
from tony_provider.runtime.text import replaced


def check_names(files: Iterable[tuple[str, str]], key: str) -> None:
    """Look at all files, each by its part and its path there. Raises PublishError.

    Some hundred bytes for each file.
    """
    numbers: dict[str, int] = {}  # of parts
    seen: dict[bytes, int] = {}  # the part's, by a hash of the path: a million paths would take more
    for part, path in files:
        number = numbers.setdefault(part, len(numbers))
        before = seen.setdefault(hashlib.blake2b(os.fsencode(path), digest_size=16).digest(), number)
        if before != number:
            other = next(name for name, each in numbers.items() if each == before)
            raise PublishError(
                f"{key}: {other} and {part} have both left {replaced(path)}; have each task name its files after "
                "itself (TONY_RANK), or use layout: tasks"
            )
