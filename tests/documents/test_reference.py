"""docs/reference.md says what the code says."""

from __future__ import annotations

from tests.documents.reference import PAGE, TABLES, renewed, tables_of


def test_the_tables_are_those_of_the_code() -> None:
    page = PAGE.read_text()
    assert page == renewed(page), "make docs-tables writes them anew"


def test_each_table_is_there_once() -> None:
    assert sorted(tables_of(PAGE.read_text())) == sorted(TABLES)
