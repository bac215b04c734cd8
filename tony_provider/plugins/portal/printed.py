"""What programs have printed is for those who may read task logs: others are told what happened, and not that.

The runtime's messages have it from their second line on.
"""

from __future__ import annotations

from typing import Any

from tony_provider.runtime.text import end_of_log, first_line
from tony_provider.watching.output_lines import shown

CUT = "… what was printed before is left out\n"
_LONGEST = 16 << 10  # characters of a line


def end_of_output(data: bytes, tail: int) -> str:
    """The last lines of a log, of at most ``tail`` bytes, as a terminal shows them; below ``CUT`` where more was.

    ``data``: one byte more than ``tail``, if there is more: whether the first line is whole is seen by what is before.
    """
    lines = end_of_log(data, tail).split(b"\n")
    text = "\n".join(shown(line, _LONGEST) for line in lines)
    return CUT + text if len(data) > tail else text


def first_lines(plain: Any) -> Any:
    """Plain data, of each text its first line."""
    if isinstance(plain, str):
        return first_line(plain)
    if isinstance(plain, dict):
        return {name: first_lines(value) for name, value in plain.items()}
    if isinstance(plain, list):
        return [first_lines(each) for each in plain]
    return plain
