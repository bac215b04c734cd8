"""Where answers are written: a terminal, whose width most tables keep to, or a file or pipe, where nothing is cut."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from airflow.cli.simple_table import AirflowConsole
from rich.console import Console, RenderableType
from rich.markup import escape
from rich.text import Text

from tony_provider.runtime.text import one_line, printable

_WIDE = 1 << 14  # characters; wider than any path


def print_rows(rows: Sequence[Mapping[str, object]], output: str, *, whole: bool = False) -> None:
    """As ``--output`` says. ``whole``: a terminal breaks lines, never cells, so that ids and paths can be copied."""
    console = AirflowConsole(emoji=False)
    if output == "table" and (whole or not console.is_terminal):  # JSON would be padded with blanks up to the width
        console.width = _WIDE
    if output not in ("json", "yaml"):  # those write what a terminal obeys in ASCII
        rows = [{key: _cell(value, output) for key, value in row.items()} for row in rows]
    console.print_as(rows, output)


def _cell(value: object, output: str) -> object:
    if not isinstance(value, str):
        return value
    return escape(one_line(value)) if output == "table" else one_line(value)  # a table's cells would be markup


def as_text(text: str, style: str = "") -> Text:
    """A text of somebody else's as rich takes one: no markup, and nothing that a terminal obeys."""
    return Text(printable(text), style=style)


def say(text: str) -> None:
    """Print an answer of a command that is no table, whoever's names and words are in it."""
    print(printable(text), flush=True)  # noqa: T201 - its answer


def print_whole(renderable: RenderableType) -> None:
    """What is no table of rows, such as a job."""
    console = Console(soft_wrap=True)
    if not console.is_terminal:
        console.width = _WIDE
    console.print(renderable)
