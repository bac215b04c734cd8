"""What a command loads before it begins, which people wait for each time."""

from __future__ import annotations

import subprocess
import sys

# Only for some commands, or for one kind of cluster; each takes a tenth of a second, or loads many modules.
HEAVY = (
    "requests",
    "yarn_api_client",
    "grpc",
    "rich.live",
    "tony_provider.cluster.checks.doctor",
    "tony_provider.cluster.garbage",
    "tony_provider.cluster.local",
    "tony_provider.cluster.yarn",
    "tony_provider.watching.job_watch",
)
MODULES = (
    "diagnose",
    "job_actions",
    "job_file",
    "local_tensorboard",
    "logs",
    "maintenance",
    "open_tunnel",
    "show_status",
    "submit",
)
NEEDED = {"maintenance": ["tony_provider.cluster.garbage"]}

# Airflow's own start takes seconds, so it is made once, and each command is imported in a copy of that process.
NEWLY_LOADED = """
import os, sys
from importlib import import_module
from airflow.cli.cli_parser import get_parser
get_parser()
before = set(sys.modules)
for module in sys.argv[1:]:
    if os.fork() == 0:
        import_module(module)
        print(module, *sorted(set(sys.modules) - before), flush=True)
        os._exit(0)
    os.wait()
"""
DEFINITION = """
import sys
import airflow.cli.cli_config
before = set(sys.modules)
import tony_provider.cli.definition
print(*sorted(set(sys.modules) - before))
"""


def output_of(code: str, *arguments: str) -> str:
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=True).stdout


def test_every_command_of_airflow_pays_for_the_definition_alone() -> None:
    assert output_of(DEFINITION).split() == ["tony_provider.cli", "tony_provider.cli.definition"]


def test_a_module_of_commands_loads_what_it_needs() -> None:
    modules = [f"tony_provider.cli.{module}" for module in MODULES]
    loaded = {line.split()[0]: line.split() for line in output_of(NEWLY_LOADED, *modules).splitlines()}
    assert list(loaded) == modules
    for name, module in zip(MODULES, modules, strict=True):
        found = [heavy for heavy in HEAVY if any(f"{each}.".startswith(f"{heavy}.") for each in loaded[module])]
        assert found == NEEDED.get(name, []), name
