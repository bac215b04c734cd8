"""``airflow tony advise``: what should be changed about a job."""

from __future__ import annotations

import json
import textwrap
from argparse import Namespace
from collections.abc import Sequence
from typing import Any

from tony_provider.advice.advise import advise as advice_on
from tony_provider.advice.advise import merged_change
from tony_provider.advice.explained import explained
from tony_provider.cli.command import command
from tony_provider.cli.named import application_of, hook_of, identity_of
from tony_provider.cli.printing import print_rows, say
from tony_provider.cluster.history.advice import Advice
from tony_provider.cluster.history.job_history import JobHistory
from tony_provider.runtime.codec import to_plain
from tony_provider.runtime.text import one_line


@command
def advise(args: Namespace) -> None:
    """The command. Prints at most three pieces of advice, or with ``--patch`` their changes as one merge patch."""
    with hook_of(args) as hook:
        found = application_of(hook, args)
        job = hook.history(identity_of(hook, found), found.application_id)
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
        lines += ["", *textwrap.indent(explained(each.rule), "  ").splitlines(), ""] if explain else []
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
