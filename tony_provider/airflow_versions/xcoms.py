"""Results each key of which is an XCom of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tony_provider.airflow_versions.capabilities import EMPTY_XCOMS


def pushable(result: Mapping[str, Any]) -> dict[str, Any]:
    """The result as this Airflow can take it: before 3.1 it fails a task that returns a key without a value."""
    return {key: value for key, value in result.items() if value is not None or EMPTY_XCOMS.is_here}
