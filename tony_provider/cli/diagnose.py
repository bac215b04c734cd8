"""The commands ``airflow tony doctor``, ``nodes``, ``advise`` and ``replay``.

``doctor`` checks a connection, ``nodes`` lists nodes that lost containers, ``advise`` suggests changes to a job, and
``replay`` runs one task of an earlier job again on this machine.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tony_provider.advice.advise import advise as advice_on
from tony_provider.advice.advise import merged_change, rule_documentation
from tony_provider.cli.command import command, expect_directory, hook_of, iso_time, job_of, print_rows, say
from tony_provider.cli.job_file import secrets_from_environment
from tony_provider.cluster.findings import await_late_checks
from tony_provider.cluster.records.history import JobHistory
from tony_provider.cluster.records.summary import Advice
from tony_provider.cluster.replay import ReplayPlanner
from tony_provider.runtime.common import contract
from tony_provider.runtime.common.codec import to_plain
from tony_provider.runtime.common.text import one_line
from tony_provider.runtime.storage.stores import JobStores

_TIDYING_SECONDS = 5.0  # extra time for a slow store to remove the test file, after the output is complete


@command
def doctor(args: Namespace) -> None:
    """Check a connection. Exits with 1 if a problem keeps jobs from running."""
    with hook_of(args) as hook:
        report = hook.diagnose()
    rows = [
        {
            "checked": finding.what,
            "outcome": finding.outcome.value,
            "found": finding.detail,
            "advice": finding.advice or None,
        }
        for finding in report.findings
    ]
    print_rows(rows, args.output)
    if args.output == "table":
        who = f" as {report.user}" if report.user else ""
        say(f"Checked the {report.cluster} cluster from host {report.host}{who}")
    sys.stdout.flush()
    await_late_checks(_TIDYING_SECONDS)
    if not report.is_good:
        count = len(report.problems)
        raise SystemExit(f"{count} problem{'s' if count > 1 else ''} found")


@command
def nodes(args: Namespace) -> None:
    """Print the nodes that lost containers in the last days, sorted by the number of applications."""
    with hook_of(args) as hook:
        found, least = hook.suspect_nodes(), hook.settings.avoid_nodes_after
    rows = [
        {
            "node": each.node,
            "applications": len(each.applications),
            "avoided": each.is_avoided(least),
            "latest": iso_time(each.latest.time_ms),
            "latest_application": each.applications[0],
            "reason": each.latest.reason,
        }
        for each in found
    ]
    if rows or args.output != "table":
        print_rows(rows, args.output, whole=True)
    else:
        say(
            f"No node has lost a container of this staging directory's jobs in the last {contract.LOST_NODES_DAYS} days"
        )


@command
def advise(args: Namespace) -> None:
    """Print at most three pieces of advice. With ``--patch``, print the advised changes as a merge patch instead."""
    with hook_of(args) as hook:
        job = expect_directory(job_of(hook, args)[0]).history()
        former = hook.former_runs(job.labels).summaries
    advice = advice_on(job, former)
    if args.patch:
        say(json.dumps(merged_change(advice), indent=2))
    elif args.output == "table":
        say("\n".join(map(one_line, _lines(job, advice, explain=args.explain))))
    elif args.output == "plain":
        print_rows([_row(each) for each in advice], "plain")
    else:
        print_rows([to_plain(each) for each in advice], args.output)


def _lines(job: JobHistory, advice: Sequence[Advice], *, explain: bool) -> list[str]:
    lines = []
    for each in advice:
        figures = ", ".join(f"{name} {_short(value)}" for name, value in each.evidence.items() if value is not None)
        lines += [each.text, f"  {each.rule}, {each.confidence.value} confidence: {figures}"]
        lines += [f"  overrides: {json.dumps(each.change)}"] if each.change else []
        lines += ["", *textwrap.indent(rule_documentation(each.rule), "  ").splitlines(), ""] if explain else []
    return [
        *(lines or [f"There is no advice on {job.application_id}"]),
        *(f"Not known: {each}" for each in job.missing),
    ]


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _row(advice: Advice) -> dict[str, Any]:
    return {
        "rule": advice.rule,
        "confidence": advice.confidence.value,
        "gain": f"{advice.gain:.2f}",
        "text": one_line(advice.text),
    }


_RUNNER = "tony_provider.runtime.executor.replay_runner"


@command
def replay(args: Namespace) -> None:
    """Copy what the task had, run the task in the foreground, and exit with its exit code."""
    secrets = secrets_from_environment(args.secret or [])
    with hook_of(args) as hook, _folder(args.directory) as folder:
        job, _ = job_of(hook, args)
        directory = expect_directory(job).directory
        planner = ReplayPlanner(hook.storage(), hook.layout, directory, folder, secrets)
        plan = planner.plan(args.task, args.start, with_peers=args.with_peers)
        say("\n".join(plan.describe()))
        stores = JobStores(hook.storage(), hook.layout.root)
        try:
            plan.fetch(stores)
        finally:
            stores.close()
        debug = {contract.ENV_POST_MORTEM: "1"} if args.debug else {}
        runner = subprocess.Popen([sys.executable, "-m", _RUNNER, str(folder)], env={**os.environ, **debug})
        signal.signal(signal.SIGINT, lambda *_: None)  # for the program, which a debugger may run
        signal.signal(signal.SIGTERM, lambda *_: runner.terminate())
        code = runner.wait()
    if code:
        raise SystemExit(code)


@contextmanager
def _folder(given: str | None) -> Iterator[Path]:
    """Yield a folder that does not exist yet, and is removed at the end if the user has not named it."""
    if given is None:
        with tempfile.TemporaryDirectory(prefix="tony-replay-", ignore_cleanup_errors=True) as made:
            yield Path(made, "replay")
        return
    folder = Path(given).absolute()
    if folder.exists():
        raise SystemExit(f"--directory: {folder} exists; name a new directory")
    yield folder
