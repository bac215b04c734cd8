"""Times, as commands show them."""

from __future__ import annotations

import time

import pytest

from tony_provider.cli.command import age_of as ago
from tony_provider.cli.command import seconds_of, utc_time


def test_moments() -> None:
    assert utc_time(None) == utc_time(0) == ""
    assert utc_time(1_700_000_000_000) == "2023-11-14 22:13:20"
    assert ago(int((time.time() - 7200) * 1000)).startswith("2 h")


def test_times_as_people_write_them() -> None:
    assert (seconds_of("--grace", "90s"), seconds_of("--older-than", "30d")) == (90.0, 30 * 86400.0)
    with pytest.raises(SystemExit, match="--grace: not a time"):
        seconds_of("--grace", "soon")
