"""What holds without other Airflows: who names what only some versions have, and what people are told of it."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.airflows.releases import RELEASES
from tests.structure.source import ROOT, Module, modules
from tony_provider.compat import AIRFLOW_VERSION, CAPABILITIES, AirflowTooOld, Capability

VERSIONS = "tony_provider.compat"
DOCUMENT = ROOT / "docs" / "reference" / "airflow-versions.md"
COMPAT_FOLDER = "airflow.providers.common.compat"
COMPAT = f"{COMPAT_FOLDER}.sdk"  # maps names across versions by itself
# Names of every version: the oldest is checked below, and `make airflows` imports them all.
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
    "airflow.sdk.definitions.template.literal",
    "airflow.sdk.exceptions.AirflowRuntimeError",
    "airflow.sdk.execution_time.task_runner.RuntimeTaskInstance",
    "airflow.sdk.log.mask_secret",
    "airflow.triggers.base.BaseTrigger",
    "airflow.triggers.base.TriggerEvent",
    "airflow.utils.cli.suppress_logs_and_warning",
}
# Of 3.3 alone, and so are those who ask for them: Airflow is told of the portal where it has all that it needs.
OF_THE_PORTAL = ("tony_provider.portal", "tony_provider.cli.portal_table")
# Names of common.compat that are not in 1.12, which the provider still takes.
NEW_IN_COMPAT = {"BaseTrigger", "RetryAction", "RetryDecision", "RetryPolicy", "mask_secret"}


def at_run_time(tree: ast.Module) -> Iterator[ast.AST]:
    """What is run when a module is imported, or later, without what only type checkers read."""
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop()
        yield node
        typed = isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        pending += node.orelse if typed and isinstance(node, ast.If) else ast.iter_child_nodes(node)


def taken(module: Module) -> Iterator[str]:
    """The names that a module takes of Airflow."""
    for node in at_run_time(module.tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "airflow":
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.partition(".")[0] == "airflow")


def test_what_only_some_versions_have_is_named_in_one_place() -> None:
    named = {
        f"{module.path}: {name}"
        for module in modules("tony_provider").values()
        if not module.name.startswith((VERSIONS, *OF_THE_PORTAL))
        for name in taken(module)
        if name not in EVERYWHERE
        and not name.startswith(
            ("airflow.providers.openlineage", f"{COMPAT_FOLDER}.openlineage", f"{COMPAT_FOLDER}.lineage")
        )
        and not (name.startswith(f"{COMPAT}.") and name.rpartition(".")[2] not in NEW_IN_COMPAT)
    }
    assert named == set(), f"to be imported from {VERSIONS}, or looked for in every version and listed here"


@pytest.fixture(scope="module")
def oldest_airflow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source files of the oldest Airflow that the provider takes, without what they import."""
    folder = tmp_path_factory.mktemp("airflow")
    version = RELEASES[0].version
    pins = [f"apache-airflow-core=={version}", f"apache-airflow-task-sdk==1.{version.partition('.')[2]}"]
    uv = Path(sys.executable).with_name("uv")
    subprocess.run([uv, "pip", "install", "-q", "--no-deps", "--target", folder, *pins], check=True, timeout=300)
    return folder


def test_the_oldest_airflow_has_what_every_version_has(oldest_airflow: Path) -> None:
    """Seen: ``airflow.sdk`` of Airflow 3.0 names ``literal`` for type checkers, and cannot import it."""
    missing = []
    for name in sorted(EVERYWHERE):
        module, _, wanted = name.rpartition(".")
        place = oldest_airflow.joinpath(*module.split("."))
        file = place.with_suffix(".py") if place.with_suffix(".py").exists() else place / "__init__.py"
        if not file.exists() or wanted not in set(defined(ast.parse(file.read_text()))):
            missing.append(name)
    assert missing == []


def defined(tree: ast.Module) -> Iterator[str]:
    """The names that a module has, also those that it imports at their first use."""
    for node in at_run_time(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from (alias.asname or alias.name for alias in node.names)
        elif isinstance(node, ast.Dict):
            yield from (key.value for key in node.keys if isinstance(key, ast.Constant) and isinstance(key.value, str))


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
        str(told.value)
        == f"TonyOracle needs Airflow 99.0 or newer, and this is Airflow {AIRFLOW_VERSION}. Say what you want."
    )


def test_the_newest_release_is_the_one_that_is_pinned() -> None:
    assert RELEASES[-1].version == AIRFLOW_VERSION
    assert all(each.is_here for each in CAPABILITIES)
