"""docs/reference.md says what the code says."""

from __future__ import annotations

from tests.documents.made import blocks_of, renewed
from tests.documents.reference import PAGE, TABLES


def test_the_tables_are_those_of_the_code() -> None:
    page = PAGE.read_text()
    assert page == renewed(page), "make docs-tables writes them anew"


def test_each_table_is_there_once() -> None:
    assert sorted(blocks_of(PAGE.read_text(), "table")) == sorted(TABLES)
