"""The commands under ``airflow tony``. Imported by every `airflow` command, so it imports nothing heavy."""

from __future__ import annotations

from airflow.cli.cli_config import ActionCommand, Arg, CLICommand, GroupCommand, lazy_load_command

_ARG_PYTHON = Arg(  # type: ignore[no-untyped-call]
    ("--python",),
    help="Versions of the nodes' Python, with commas between, such as 3.9,3.12",
    required=True,
)
_ARG_PLATFORM = Arg(  # type: ignore[no-untyped-call]
    ("--platform",),
    help="Wheel platforms of the nodes, with commas between (default: Linux on x86_64)",
)
_ARG_OUTPUT = Arg(  # type: ignore[no-untyped-call]
    ("--output",),
    help="The archive to write (default: %(default)s)",
    default="tony-runtime.zip",
)

_RUNTIME_COMMANDS = (
    ActionCommand(
        name="build",
        help="Make a runtime archive for nodes whose Python is not the worker's",
        description=(
            "Download the runtime's dependencies for the given versions of Python, and pack them with the runtime "
            "into one archive. Name it as `runtime_archive` in the tony connection: a path on the workers, or the URI "
            "of a copy on HDFS."
        ),
        func=lazy_load_command("tony_provider.cli.runtime.build"),
        args=(_ARG_PYTHON, _ARG_PLATFORM, _ARG_OUTPUT),
    ),
)


def get_tony_cli_commands() -> list[CLICommand]:
    """What the provider adds to Airflow's command line."""
    runtime = GroupCommand(name="runtime", help="The runtime that travels to the nodes", subcommands=_RUNTIME_COMMANDS)
    return [GroupCommand(name="tony", help="Distributed training on YARN", subcommands=(runtime,))]
