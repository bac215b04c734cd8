"""``airflow tony doctor``: find what is wrong with a connection."""

from __future__ import annotations

import sys
from argparse import Namespace

from tony_provider.cli.command import command
from tony_provider.cli.named import hook_of
from tony_provider.cli.printing import print_rows, say
from tony_provider.cluster.diagnosis.parallel import let_end

_TIDYING_SECONDS = 5.0  # after all was told, for a slow store to remove the file that was tried


@command
def doctor(args: Namespace) -> None:
    """The command. Exits with 1 when something keeps jobs from running."""
    with hook_of(args) as hook:
        report = hook.diagnose()
    rows = [
        {
            "looked at": finding.what,
            "outcome": finding.outcome.value,
            "found": finding.detail,
            "what to do": finding.advice,
        }
        for finding in report.findings
    ]
    print_rows(rows, args.output)
    if args.output == "table":
        who = f" as {report.user}" if report.user else ""
        say(f"Looked at the {report.cluster} cluster from host {report.host}{who}")
    sys.stdout.flush()
    let_end(_TIDYING_SECONDS)
    if not report.is_good:
        count = len(report.problems)
        raise SystemExit(f"{count} problem{'s' if count > 1 else ''} found")
