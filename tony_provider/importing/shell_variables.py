"""Variables of a shell script that its call was written with: nobody fills them in here."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tony_provider.importing.draft import Draft
from tony_provider.importing.source import Source


def say_unfilled(draft: Draft, source: Source, is_call: Callable[[Sequence[str]], bool]) -> None:
    """List those that have come into the job."""
    values = list(_texts(draft.job))
    for name in source.shell_variables(is_call):
        if any(re.search(rf"\$\{{?{name}\b", text) for text in values):
            draft.leave(
                f"${name}",
                "is filled in by the shell that runs the script, and by nobody here; have it print the call, and give "
                "that after `--`",
            )


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for each in value.values():
            yield from _texts(each)
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each)
    elif isinstance(value, str):
        yield value
