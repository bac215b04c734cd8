"""`python -m benchmarks.check [NAME …]`: the newest run beside the one that is kept; fails where a ratio got worse.

Worse is what is worse by more than the noise of both runs (`benchmarks.noise`). A ratio that is kept and was not
measured fails, too. Figures without a ratio are judged on the machine alone that they were kept on. With `--keep` the
newest run becomes the one that is kept.
"""

from __future__ import annotations

import shutil
from argparse import ArgumentParser
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from pathlib import Path

import attrs

from benchmarks.noise import allowance
from benchmarks.program import OUTPUT
from benchmarks.report import Better, Ratio, Run, number, read_all
from tests.columns import columns

KEPT = Path(__file__).with_name("kept")


class Verdict(Enum):
    SAME = ""
    BETTER = "better"
    WORSE = "WORSE"
    NOT_MEASURED = "NOT MEASURED"
    ANOTHER_MACHINE = "another machine: not judged"
    ONE_ROUND = "one round in each: not judged"


_FAILS = (Verdict.WORSE, Verdict.NOT_MEASURED)


@attrs.frozen
class Comparison:
    """One ratio, as it is kept and as it is now."""

    benchmark: str
    kept: Ratio
    newer: Ratio | None
    allowed: float | None  # how much worse it may be
    verdict: Verdict

    @property
    def fails(self) -> bool:
        return self.verdict in _FAILS


def main() -> int:
    parser = ArgumentParser(prog="python -m benchmarks.check", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="default: all that are kept")
    parser.add_argument("--keep", action="store_true", help="keep the newest run")
    parser.add_argument("--output", type=Path, default=OUTPUT, help="where the newest run is (%(default)s)")
    arguments = parser.parse_args()
    if arguments.keep:
        return keep(arguments.names, arguments.output)
    found = list(compared(_chosen(KEPT, arguments.names), _chosen(arguments.output, arguments.names)))
    if not found:
        parser.error(f"nothing of {', '.join(arguments.names) or 'any benchmark'} is kept")
    print(table(found))
    return 1 if any(each.fails for each in found) else 0


def keep(names: Sequence[str], newest: Path) -> int:
    runs = _chosen(newest, names)
    if missing := [name for name in names if name not in runs]:
        print(f"no run of {', '.join(missing)} is in {newest}")
        return 1
    KEPT.mkdir(exist_ok=True)
    for name in runs:
        shutil.copy(newest / f"{name}.json", KEPT)
    print(f"kept: {', '.join(runs) or 'nothing'}")
    return 0 if runs else 1


def _chosen(directory: Path, names: Sequence[str]) -> dict[str, Run]:
    return {name: run for name, run in read_all(directory).items() if not names or name in names}


def compared(kept: Mapping[str, Run], newest: Mapping[str, Run]) -> Iterator[Comparison]:
    """All ratios that are kept."""
    for name, run in kept.items():
        newer = newest.get(name)
        by_name = {ratio.name: ratio for ratio in newer.report.ratios} if newer else {}
        same_machine = newer is not None and run.machine.like(newer.machine)
        for ratio in run.report.ratios:
            yield compare(name, ratio, by_name.get(ratio.name), same_machine)


def compare(benchmark: str, kept: Ratio, newer: Ratio | None, same_machine: bool) -> Comparison:
    if newer is None:
        return Comparison(benchmark, kept, None, None, Verdict.NOT_MEASURED)
    if not kept.of and not same_machine:
        return Comparison(benchmark, kept, newer, None, Verdict.ANOTHER_MACHINE)
    allowed = allowance(kept.values, newer.values)
    if allowed is None:
        return Comparison(benchmark, kept, newer, None, Verdict.ONE_ROUND)
    sign = 1 if kept.better is Better.LESS else -1
    worse = sign * (newer.median - kept.median)
    verdict = Verdict.WORSE if worse > allowed else Verdict.BETTER if worse < -allowed else Verdict.SAME
    return Comparison(benchmark, kept, newer, allowed, verdict)


def table(found: Sequence[Comparison]) -> str:
    rows = [["benchmark", "", "kept", "now", "noise", ""], *map(_row, found)]
    failing = [f"{each.benchmark}: {each.kept.name}: {each.verdict.value}" for each in found if each.fails]
    said = f"{len(failing)} of {len(found)} ratios fail:" if failing else f"none of {len(found)} ratios got worse"
    return "\n".join([*columns(rows), "", said, *failing])


def _row(each: Comparison) -> list[str]:
    now = "" if each.newer is None else number(each.newer.median)
    noise = "" if each.allowed is None else number(each.allowed)
    return [each.benchmark, each.kept.name, number(each.kept.median), now, noise, each.verdict.value]


if __name__ == "__main__":
    raise SystemExit(main())
