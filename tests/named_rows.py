"""What the tables of `make faults`, `make e2e` and `make secure` share: rows by name and kind, told line by line."""

from __future__ import annotations

import argparse
import sys
import textwrap
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar


class NamedRow(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def kind(self) -> str: ...


R = TypeVar("R", bound=NamedRow)


def kind_of(run: Callable[..., Any]) -> str:
    """The module in ``rows`` that a row's function stands in."""
    return run.__module__.rpartition(".")[2]


def chosen(rows: Iterable[R], wanted: Sequence[str]) -> list[R]:
    """Those that are called so, begin so, or are of such a kind; all when nothing is wanted in particular."""
    return [
        row
        for row in rows
        if not wanted or any(each in (row.name, row.kind) or row.name.startswith(f"{each}-") for each in wanted)
    ]


def parser_of_rows(program: str, about: str | None, root: Path) -> argparse.ArgumentParser:
    """What each of them can be told: which rows, and where and for how long its clusters are."""
    parser = argparse.ArgumentParser(prog=program, description=about)
    parser.add_argument("rows", nargs="*", help="names of rows, their beginnings, or kinds of rows; default: all")
    parser.add_argument("--list", action="store_true", help="only name the rows")
    parser.add_argument("--root", type=Path, default=root, help="(%(default)s)")
    parser.add_argument("--keep", action="store_true", help="leave all that was started running for the next call")
    return parser


def asked_for(
    parser: argparse.ArgumentParser, arguments: argparse.Namespace, rows: Sequence[R], listed: Callable[[R], str]
) -> list[R]:
    """The rows that were asked for; ends the program where there are none, and once they are listed."""
    found = chosen(rows, arguments.rows)
    if not found:
        parser.error(f"no row is called so; there are {', '.join(row.name for row in rows)}")
    if arguments.list:
        print("\n".join(map(listed, found)))
        sys.exit(0)
    return found


def wrapped(cells: Sequence[str], widths: Sequence[int]) -> list[list[str]]:
    """The cells of one row, in as many lines as the longest needs."""
    columns = [textwrap.wrap(cell, width) or [""] for cell, width in zip(cells, widths, strict=True)]
    return [
        [column[number] if number < len(column) else "" for column in columns]
        for number in range(max(map(len, columns)))
    ]


def problem_lines(problems: Iterable[str], most: int = 300) -> list[str]:
    """The first line of each, of at most so many characters."""
    lines = []
    for problem in problems:
        first, *rest = problem.strip().splitlines() or [""]
        lines.append(f"    ! {first[:most]}" + (f" (and {len(rest)} lines more)" if rest else ""))
    return lines
