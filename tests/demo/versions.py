"""The same on several versions of Hadoop, in one table: the example, and some rows of `make faults`."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Mapping, Sequence

from tests.columns import columns
from tests.demo.airflow import REPOSITORY, DemoFailed
from tests.demo.turn import turn
from tests.demo.yarn import Finding, cluster, home_of, run
from tests.hadoop.daemons import ClusterError
from tests.hadoop.resolve import ResolveError
from tests.hadoop.tools import java_version

_CELL = 36  # letters of a cell in the table of all versions
_WIDTH = 110  # of a table's last column
ROWS = ("watched", "leader-killed", "master-killed", "airflow-retry")  # of `make faults`, for each version


def run_all(versions: Sequence[str], rows: Sequence[str] = ()) -> int:
    """One version after the other; 0 when everything was found as it should be. Raises DemoFailed.

    `rows`: of `make faults`, to run on each version too, in two workers without TensorFlow.
    """
    found: dict[str, list[Finding]] = {}
    for version in versions:
        try:
            with turn(home_of(version)):
                with cluster(version) as hadoop:
                    found[version] = [Finding("Java", java_version(), good=True), *run(hadoop)]
                if rows:
                    found[version].append(hit(version, rows))
        except (ClusterError, ResolveError) as error:
            raise DemoFailed(f"Hadoop {version}: {error}") from error
    for version, findings in found.items():
        print(f"\nHadoop {version}\n" + table(findings))
    if len(found) > 1:
        print("\n" + summary(found))
    return 0 if all(finding.good for findings in found.values() for finding in findings) else 1


def hit(version: str, rows: Sequence[str]) -> Finding:
    """Run rows of `make faults` on this version of Hadoop, on a cluster of their own."""
    root = home_of(version).with_name(f"faults-{version}")
    command = [sys.executable, "-m", "tests.faults", "--quick", "--version", version, "--root", str(root), *rows]
    print(f"Hitting trainings on Hadoop {version} …", flush=True)
    done = subprocess.run(command, cwd=REPOSITORY, check=False)
    return Finding("hit by " + ", ".join(rows), "see above" if done.returncode else "all hold", done.returncode == 0)


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
