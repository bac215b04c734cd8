"""The tests that ``make pythons`` runs exist."""

from __future__ import annotations

import pytest

from tests.documents.pages import ROOT
from tests.pythons.sides import SIDES, Side


@pytest.mark.parametrize("side", SIDES, ids=lambda side: side.name)
def test_all_named_tests_exist(side: Side) -> None:
    for named in side.tests:
        path, _, test = named.rpartition("=")[2].partition("::")
        assert (ROOT / path).exists(), named
        assert not test or f"def {test}(" in (ROOT / path).read_text(), named
