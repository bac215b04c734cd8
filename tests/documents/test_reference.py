"""The generated reference pages equal the code."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.documents import command_line, interface
from tests.documents.made import blocks_of, renewed
from tests.documents.pages import name
from tests.documents.reference import PAGES, TABLES


@pytest.mark.parametrize("page", [*PAGES, command_line.PAGE, interface.PAGE], ids=name)
def test_the_generated_blocks_are_those_of_the_code(page: Path) -> None:
    text = page.read_text()
    assert text == renewed(text), "`make docs-tables` writes them"


def test_each_table_is_there_once() -> None:
    assert sorted(table for page in PAGES for table in blocks_of(page.read_text(), "table")) == sorted(TABLES)


def test_all_commands_and_interfaces_are_there() -> None:
    assert blocks_of(command_line.PAGE.read_text(), "commands") == ["shared", "tony"]
    assert sorted(blocks_of(interface.PAGE.read_text(), "interface")) == sorted(interface.OWNERS)
