"""docs/reference/states.md shows the states as the code has them."""

from __future__ import annotations

from tests.documents.lifecycles import PAGE
from tests.documents.made import blocks_of, renewed


def test_the_pictures_are_those_of_the_code() -> None:
    page = PAGE.read_text()
    assert page == renewed(page), "make docs-tables draws them anew"


def test_each_picture_is_there_once() -> None:
    assert blocks_of(PAGE.read_text(), "states") == ["job", "task", "container"]
