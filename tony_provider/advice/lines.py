"""Advice as people read it."""

from __future__ import annotations

from collections.abc import Sequence

from tony_provider.cluster.history.advice import Advice


def advice_lines(advice: Sequence[Advice], application_id: str) -> list[str]:
    """A line for each piece of advice on an application, for a log; and one that says where there is more about it."""
    lines = [f"Advice: {each.text} ({each.confidence.value} confidence)" for each in advice]
    return [*lines, f"What is behind it: airflow tony advise {application_id} --explain"] if lines else []
