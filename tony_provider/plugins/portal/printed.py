"""What programs have printed is for those who may read task logs: others are told what happened, and not that.

The runtime's messages have it from their second line on.
"""

from __future__ import annotations

from typing import Any

from tony_provider.runtime.text import first_line


def first_lines(plain: Any) -> Any:
    """Plain data, of each text its first line."""
    if isinstance(plain, str):
        return first_line(plain)
    if isinstance(plain, dict):
        return {name: first_lines(value) for name, value in plain.items()}
    if isinstance(plain, list):
        return [first_lines(each) for each in plain]
    return plain
