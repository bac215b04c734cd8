"""The rows of `make libraries` fit their programs and pins; the rows themselves take too long for `make test`."""

from __future__ import annotations

import ast

import pytest

from tests.libraries.environment import PINS
from tests.libraries.row import MOMENTS, PROGRAMS, Row
from tests.libraries.rows import KINDS, in_order


@pytest.mark.parametrize("row", in_order(), ids=lambda row: row.name)
def test_a_row_names_what_exists(row: Row) -> None:
    pinned = {line.partition("==")[0] for line in PINS.read_text().splitlines()}
    assert set(row.packages) <= pinned
    assert row.kind in KINDS
    assert row.name.startswith(f"{row.kind}-")
    assert sorted(set(row.saves)) == list(row.saves)
    assert row.paused_rank < row.instances


@pytest.mark.parametrize("row", in_order(), ids=lambda row: row.name)
def test_a_program_reports_its_moments(row: Row) -> None:
    """Without one of them, the harness waits until its deadline."""
    tree = ast.parse(row.path.read_text(), row.path.name)
    called = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert {"began", "saving", "saved", "finished"} <= called
    assert {"middle", "pause_in_torch_files"} & called


def test_each_program_has_a_row() -> None:
    assert {path.name for path in PROGRAMS.glob("*.py")} - {MOMENTS.name} == {row.path.name for row in in_order()}


def test_all_packages_are_pinned_exactly() -> None:
    lines = PINS.read_text().splitlines()
    assert all(line.count("==") == 1 for line in lines), lines
    assert lines == sorted(lines, key=lambda line: line.partition("==")[0])
