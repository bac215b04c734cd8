"""The metrics of a job in the order in which people want to see them, for all pages."""

from __future__ import annotations

from typing import Any

from tony_provider.advice.metric_names import ranked
from tony_provider.cluster.history.job_summary import JobSummary
from tony_provider.runtime.codec import to_plain


def plain_in_order(summary: JobSummary) -> dict[str, Any]:
    """A summary as plain data, whose metrics and curves are ``ranked``."""
    plain: dict[str, Any] = to_plain(summary)
    curves = {each["metric"]: each for each in plain["curves"]}
    metrics = {name: plain["metrics"][name] for name in ranked(plain["metrics"])}
    return {**plain, "metrics": metrics, "curves": [curves[name] for name in ranked(curves)]}
