"""``python -m tests.fuzz``: what ``make fuzz`` runs."""

from __future__ import annotations

import argparse
import random
import sys
import time

from tests.fuzz.parsers import PARSERS
from tests.fuzz.run import OUTPUT, fuzz


def main() -> int:
    """Feed all parsers, or those that are named, and print a table. 1: something was found."""
    parser = argparse.ArgumentParser(
        description="Feeds every parser of foreign bytes with inputs grown from valid ones."
    )
    parser.add_argument("--inputs", type=int, default=1_000_000, help="for all parsers together; default: a million")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 31), help="default: another one each time")
    parser.add_argument("parsers", nargs="*", default=sorted(PARSERS), metavar="PARSER", help="default: all")
    args = parser.parse_args()
    print(f"--seed {args.seed}", flush=True)
    began = time.monotonic()
    outcomes = fuzz(args.parsers, -(-args.inputs // len(args.parsers)), args.seed)
    found = [finding for each in outcomes for finding in each.findings]
    for finding in found:
        print(f"{finding.parser} {finding.number}: {finding.what} {finding.where}")
    total, peak = sum(each.inputs for each in outcomes), max(each.peak for each in outcomes) >> 20
    print(f"{total} inputs for {len(args.parsers)} parsers in {time.monotonic() - began:.0f} s, at most {peak} MiB")
    print(f"{len(found)} findings" + (f", in {OUTPUT}" if found else ""))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
