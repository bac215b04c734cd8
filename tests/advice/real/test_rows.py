"""The table is whole: no rule is without real jobs."""

from __future__ import annotations

from pathlib import Path

from tony_provider.advice.advise import RULES


def test_every_rule_judges_real_jobs_that_deserve_it_and_others() -> None:
    rows = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    missing = [
        rule.name
        for rule in RULES
        for says in ("told", "silent")
        if f"verdicts.{says}(" not in _test_of(rule.name, rows)
    ]
    assert missing == []


def _test_of(rule: str, rows: str) -> str:
    """The function named after the rule; empty: there is none."""
    _, _, rest = rows.partition(f"\ndef test_{rule.replace('-', '_')}(")
    return rest.partition("\ndef test_")[0]
