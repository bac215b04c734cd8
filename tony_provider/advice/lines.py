"""Advice as people read it."""

from __future__ import annotations

from collections.abc import Iterable

from tony_provider.cluster.history.advice import Advice


def advice_lines(advice: Iterable[Advice]) -> list[str]:
    """A line for each piece of advice, for a log."""
    return [
        f"Advice: {each.text} ({each.confidence.value} confidence); see docs/advice.md#{each.rule}" for each in advice
    ]
