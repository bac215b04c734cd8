"""What holds without other Airflows: who names what only some versions have, and what people are told of it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.airflows.releases import RELEASES
from tests.structure.source import ROOT, Module, modules
from tony_provider.airflow_versions.capabilities import CAPABILITIES, AirflowTooOld, Capability
from tony_provider.airflow_versions.version import AIRFLOW

VERSIONS = "tony_provider.airflow_versions"
DOCUMENT = ROOT / "docs" / "airflow-versions.md"
COMPAT = "airflow.providers.common.compat.sdk"  # maps names across versions by itself
# Names that were looked for in Airflow 3.0, 3.1, 3.2 and 3.3; `make airflows` imports them all.
EVERYWHERE = {
    "airflow.__main__.main",
    "airflow.cli.cli_config.ARG_OUTPUT",
    "airflow.cli.cli_config.ARG_VERBOSE",
    "airflow.cli.cli_config.ActionCommand",
    "airflow.cli.cli_config.Arg",
    "airflow.cli.cli_config.CLICommand",
    "airflow.cli.cli_config.GroupCommand",
    "airflow.cli.cli_config.lazy_load_command",
    "airflow.cli.cli_parser.ALL_COMMANDS_DICT",
    "airflow.cli.simple_table.AirflowConsole",
    "airflow.sdk.bases.operator.TRIGGER_FAIL_REPR",
    "airflow.sdk.bases.operator.TriggerFailureReason",
    "airflow.sdk.exceptions.AirflowRuntimeError",
    "airflow.sdk.execution_time.task_runner.RuntimeTaskInstance",
    "airflow.sdk.literal",
    "airflow.sdk.log.mask_secret",
    "airflow.triggers.base.BaseTrigger",
    "airflow.triggers.base.TriggerEvent",
    "airflow.utils.cli.suppress_logs_and_warning",
}
# Of 3.3 alone, and so are those who ask for them: Airflow is told of the portal where it has all that it needs.
OF_THE_PORTAL = "tony_provider.plugins.portal"
# Names of common.compat that are not in 1.12, which the provider still takes.
NEW_IN_COMPAT = {"BaseTrigger", "RetryAction", "RetryDecision", "RetryPolicy", "mask_secret"}


def at_run_time(module: Module) -> Iterator[str]:
    """What it takes of Airflow when it is imported, or later; for type checkers there is the newest only."""
    pending: list[ast.AST] = [module.tree]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "airflow":
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.partition(".")[0] == "airflow")
        typed = isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        pending += node.orelse if typed and isinstance(node, ast.If) else ast.iter_child_nodes(node)


def test_what_only_some_versions_have_is_named_in_one_place() -> None:
    named = {
        f"{module.path}: {name}"
        for module in modules("tony_provider").values()
        if not module.name.startswith((VERSIONS, OF_THE_PORTAL))
        for name in at_run_time(module)
        if name not in EVERYWHERE
        and not name.startswith(("airflow.providers.openlineage", "airflow.providers.common.compat.openlineage"))
        and not (name.startswith(f"{COMPAT}.") and name.rpartition(".")[2] not in NEW_IN_COMPAT)
    }
    assert named == set(), f"to be imported from {VERSIONS}, or looked for in every version and listed here"


def test_the_document_tells_of_every_capability() -> None:
    text = DOCUMENT.read_text()
    rows = [f"| {each.name} | {each.since[0]}.{each.since[1]} | {each.without} |" for each in CAPABILITIES]
    assert [row for row in rows if row not in text] == []


def test_who_uses_what_is_not_there_is_told_which_version_has_it() -> None:
    unborn = Capability("Mind reading", (99, 0), "Say what you want.")
    assert not unborn.is_here
    with pytest.raises(AirflowTooOld) as told:
        unborn.refuse("TonyOracle")
    assert (
        str(told.value) == f"TonyOracle needs Airflow 99.0 or newer, and this is Airflow {AIRFLOW}. Say what you want."
    )


def test_the_newest_release_is_the_one_that_is_pinned() -> None:
    assert RELEASES[-1].version == AIRFLOW
    assert all(each.is_here for each in CAPABILITIES)
