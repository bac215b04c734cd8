"""The same on several versions of Hadoop, in one table."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence

from tests.columns import columns
from tests.demo.airflow import DemoFailed
from tests.demo.turn import turn
from tests.demo.yarn import Finding, cluster, home_of, run
from tests.hadoop.daemons import ClusterError
from tests.hadoop.resolve import ResolveError

_CELL = 36  # letters of a cell in the table of all versions
_WIDTH = 110  # of a table's last column


def run_all(versions: Sequence[str]) -> int:
    """One version after the other; 0 when everything was found as it should be. Raises DemoFailed."""
    found: dict[str, list[Finding]] = {}
    for version in versions:
        try:
            with turn(home_of(version)), cluster(version) as hadoop:
                found[version] = run(hadoop)
        except (ClusterError, ResolveError) as error:
            raise DemoFailed(f"Hadoop {version}: {error}") from error
    for version, findings in found.items():
        print(f"\nHadoop {version}\n" + table(findings))
    if len(found) > 1:
        print("\n" + summary(found))
    return 0 if all(finding.good for findings in found.values() for finding in findings) else 1


def summary(found: Mapping[str, Sequence[Finding]]) -> str:
    """One column per version, one row per thing looked at."""
    rows = [["", *(f"Hadoop {version}" for version in found)]]
    for of_one_thing in zip(*found.values(), strict=True):
        rows.append([of_one_thing[0].what, *(_cell(finding) for finding in of_one_thing)])
    return "\n".join(columns(rows))


def _cell(finding: Finding) -> str:
    seen = finding.seen if len(finding.seen) <= _CELL else finding.seen[: _CELL - 1] + "…"
    return f"{'ok ' if finding.good else 'BAD'} {seen}"


def table(findings: Sequence[Finding]) -> str:
    width = max(len(finding.what) for finding in findings)
    lines = []
    for finding in findings:
        first, *rest = textwrap.wrap(finding.seen, _WIDTH) or [""]
        lines.append(f"  {'ok ' if finding.good else 'BAD'}  {finding.what:{width}}  {first}")
        lines += [f"       {'':{width}}  {line}" for line in rest]
    return "\n".join(lines)
