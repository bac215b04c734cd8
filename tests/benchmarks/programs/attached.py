"""A benchmark that uses the cluster which it is given."""

from __future__ import annotations

import os

from benchmarks import program
from benchmarks.report import OURS, Figure, Report
from tests.hadoop.fixtures import ATTACH

if __name__ == "__main__":
    arguments = program.options(__doc__).parse_args()
    report = Report("attached", os.environ[ATTACH], [Figure("first", OURS, "s", [1.0])])
    raise SystemExit(program.tell(report, arguments.output))
