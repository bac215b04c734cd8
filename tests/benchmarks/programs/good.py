"""A benchmark that runs, and misses an aim."""

from __future__ import annotations

from benchmarks import program
from tests.benchmarks.reports import small

if __name__ == "__main__":
    raise SystemExit(program.tell(small("good", first=2.0), program.options(__doc__).parse_args().output))
