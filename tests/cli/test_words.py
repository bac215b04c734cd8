"""Times, as commands show them."""

from __future__ import annotations

import pytest

from tony_provider.cli.command import iso_time, seconds_of


def test_moments() -> None:
    assert (iso_time(None), iso_time(0)) == (None, None)
    assert iso_time(1_700_000_000_123) == "2023-11-14T22:13:20.123+00:00"


def test_times_as_people_write_them() -> None:
    assert (seconds_of("--grace", "90s"), seconds_of("--older-than", "30d")) == (90.0, 30 * 86400.0)
    with pytest.raises(SystemExit, match="--grace: not a time"):
        seconds_of("--grace", "soon")
