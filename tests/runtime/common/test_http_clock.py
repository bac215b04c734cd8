"""The clock of an HTTP server, by the header of its answers."""

from __future__ import annotations

from email.utils import formatdate

import pytest

from tony_provider.runtime.common.clock import server_clock_ahead

NOW = 1_700_000_000.0


@pytest.mark.parametrize("ahead", [-180_000.0, -3.0, 0.0, 7200.0])
def test_the_clock_of_a_server_is_known_to_a_second(ahead: float) -> None:
    for part in (0.0, 0.4, 0.9):
        date = formatdate(NOW + part + ahead, usegmt=True)
        found = server_clock_ahead(date, NOW + part - 0.1, NOW + part + 0.1)
        assert found is not None
        assert abs(found - ahead) <= 0.6


@pytest.mark.parametrize(
    ("date", "answered"), [(None, NOW), ("yesterday", NOW), (formatdate(NOW, usegmt=True), NOW + 30), ("", NOW)]
)
def test_an_answer_that_does_not_tell_leaves_what_is_known(date: str | None, answered: float) -> None:
    assert server_clock_ahead(date, NOW, answered) is None
    assert server_clock_ahead(date, NOW, answered, 5.0) == 5.0
