"""What the programs of all benchmarks have in common: their options, and what they leave.

Each is a module with ``measure(…) -> Report`` and a ``main``, and runs as `python -m benchmarks.NAME`: alone, or
started by `make bench`.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from pathlib import Path

from benchmarks import plots
from benchmarks.report import Report, Run

OUTPUT = Path(__file__).resolve().parents[1] / "test-output" / "bench"


def options(doc: str | None) -> ArgumentParser:
    """With `--rounds` and `--output`; a benchmark adds those of its sizes."""
    parser = ArgumentParser(description=doc, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, help="for each size; the default is another one for each")
    parser.add_argument("--output", type=Path, default=OUTPUT, help="where JSON and plot are left (%(default)s)")
    return parser


def sizes(text: str) -> list[int]:
    """An option's "1,2,8"."""
    return [int(part) for part in text.split(",")]


def names(text: str) -> list[str]:
    return text.split(",")


def progress(line: str) -> None:
    """Told while a benchmark runs; its table comes at the end."""
    print(line, file=sys.stderr, flush=True)


def tell(report: Report, directory: Path) -> int:
    """Print it, and leave it as JSON and as a plot. The exit code of a benchmark that ran: missed aims are told."""
    print(report.text())
    Run.here(report).write(directory)
    plots.write(report, directory)
    return 0
