"""The sections of docs/reference/cli.md, generated from the definitions of the ``airflow tony`` commands."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from operator import itemgetter
from pathlib import Path
from typing import Any

from airflow.cli.cli_config import ActionCommand, Arg, CLICommand

from tony_provider.cli.definition import get_tony_cli_commands

# Short names of arguments that commands share. The page explains these names.
_GROUPS = {
    "`--tag`, `--dag-id`, `--task-id`, `--run-id`, `--map-index`, `--try`": "job options",
    "`application_id`, job options": "job",
    "`--conn-id`, `--proxy-user`, `--verbose`": "connection",
}

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"

_MANY = 2  # an argument that so many commands share is described once, in a table of its own


def sections(name: str) -> str:
    """Return the sections of all commands, or the table of the arguments that many commands share."""
    commands = sorted(_commands(), key=itemgetter(0))
    uses = Counter(arg for _, command in commands for arg in command.args)
    shared = [arg for arg, number in uses.items() if number >= _MANY]
    if name == "shared":
        return _table(shared)
    return "\n".join(_section(path, command, shared) for path, command in commands)


def _commands() -> Iterator[tuple[str, ActionCommand]]:
    def walk(path: str, command: CLICommand) -> Iterator[tuple[str, ActionCommand]]:
        if isinstance(command, ActionCommand):
            yield f"{path} {command.name}", command
        else:
            for each in command.subcommands:
                yield from walk(f"{path} {command.name}", each)

    for command in get_tony_cli_commands():
        yield from walk("airflow", command)


def _section(path: str, command: ActionCommand, shared: list[Arg]) -> str:
    own = [arg for arg in command.args if arg not in shared]
    also = [f"`{_name(arg)}`" for arg in shared if arg in command.args]
    text = f"## {path}\n\n{_sentence(command.description or command.help)}\n"
    if own:
        text += f"\n{_table(own)}"
    if also:
        line = ", ".join(also)
        for names, group in _GROUPS.items():
            line = line.replace(names, group)
        text += f"\nShared arguments: {line}.\n"
    return text


def _table(args: list[Arg]) -> str:
    rows = [f"| {_term(arg)} | {_sentence(_help(arg.kwargs))} |\n" for arg in args]
    return "| argument | meaning |\n| --- | --- |\n" + "".join(rows)


def _name(arg: Arg) -> str:
    flag = str(arg.flags[-1])
    return flag if flag.startswith("-") else arg.kwargs.get("metavar") or flag


def _term(arg: Arg) -> str:
    options: dict[str, Any] = arg.kwargs
    flags = ", ".join(f"`{flag}`" for flag in arg.flags)
    if not _name(arg).startswith("-"):
        return f"`{_name(arg)}`" + (" (optional)" if options.get("nargs") == "?" else "")
    if "action" in options and options["action"] != "append":
        return flags
    value = options.get("metavar") or "\\|".join(map(str, options.get("choices", ()))) or _name(arg)[2:].upper()
    return f"{flags} {value}"


def _help(options: dict[str, Any]) -> str:
    text = str(options.get("help", ""))
    return text % {"default": options.get("default")} if "%(default)s" in text else text.replace("%%", "%")


def _sentence(text: str) -> str:
    text = re.sub(r"`[^`]*`|<", lambda found: "&lt;" if found[0] == "<" else found[0], " ".join(text.split()))
    return text.removesuffix(".").replace("|", "\\|") + "."
