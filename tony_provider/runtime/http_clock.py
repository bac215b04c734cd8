"""The clocks of HTTP servers, by the ``Date`` header of their answers."""

from __future__ import annotations

from email.utils import parsedate_to_datetime
from typing import Optional

_ROUNDING = 0.5  # seconds: the header has whole seconds, rounded down
_LONGEST = 2.0  # seconds that an answer may take, so that its header tells the time precisely


def ahead_of(date: Optional[str], asked: float, answered: float, known: Optional[float] = None) -> Optional[float]:
    """Return the seconds by which a server's clock is ahead of this machine's.

    ``date``: the header. ``asked``, ``answered``: epoch seconds of this machine. Return ``known``, the result of an
    earlier answer, if this answer does not tell.
    """
    if date is None or not 0 <= answered - asked <= _LONGEST:
        return known
    try:
        theirs = parsedate_to_datetime(date).timestamp()
    except (ValueError, OverflowError):
        return known
    return theirs + _ROUNDING - (asked + answered) / 2
