r"""The one place that builds the values of a launch context: command, variables, and files of a container.

NodeManagers write these values into the script launch_container.sh. The command, each variable and the path of each
file stand between double quotes, where a shell interprets ``$``, backquotes, ``"`` and ``\``. Hadoop also replaces
``{{name}}``, ``<LOG_DIR>`` and ``<CPS>`` (ContainerLaunch.expandEnvironment, UnixShellScriptBuilder). The provider's
own command is escaped. Other values are refused if they contain one of these texts.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence

import attrs

from tony_provider.runtime import contract
from tony_provider.runtime.application import LocalizedResource
from tony_provider.runtime.text import one_line

LOG_DIR = "<LOG_DIR>"  # NodeManagers replace it by the container's log directory (ApplicationConstants)
_REPLACED = re.compile(r"\{\{|\}\}|<LOG_DIR>|<CPS>")
_INTERPRETED = re.compile(r'[$`"\\\x00-\x1f\x7f]|' + _REPLACED.pattern)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FILE = re.compile(r"[A-Za-z0-9._/-]+")


class UnsafeValue(ValueError):  # noqa: N818 - named for what is wrong
    """A value that a NodeManager's launch script would interpret."""


@attrs.frozen
class ScriptValues:
    """Values of a launch context that the launch script does not interpret."""

    command: str
    variables: dict[str, str]
    files: dict[str, LocalizedResource]  # by their names in the container's directory


def script_values(
    words: Sequence[str], variables: Mapping[str, str], files: Mapping[str, LocalizedResource]
) -> ScriptValues:
    """Return the values for a command of plain words, its variables and files. Raises UnsafeValue."""
    for name, value in variables.items():
        if not _NAME.fullmatch(name):
            raise UnsafeValue(f"{name!a} is not a valid name of an environment variable")
        _check(f"the variable {name}", value)
    for name, resource in files.items():
        if not _FILE.fullmatch(name):
            raise UnsafeValue(f"{name!a} is not a generated file name")
        _check("the file", resource.uri.rpartition("/")[2])
    return ScriptValues(_command(words), {**variables, contract.ENV_LOG_DIR: LOG_DIR}, dict(files))


def _check(what: str, value: str) -> None:
    if found := _INTERPRETED.search(value):
        raise UnsafeValue(
            f"{what} {one_line(value)!a} contains {found[0]!a}, which YARN's launch script would interpret; change it"
        )


def _command(words: Sequence[str]) -> str:
    """Return the shell command. It begins with ``exec``, so that no shell leads the process group.

    A shell that leads the group would end the container at SIGTERM, before the program has stopped.
    """
    line = " ".join(["exec", *map(shlex.quote, words)])
    if found := _REPLACED.search(line):
        raise UnsafeValue(f"the command contains {found[0]}, which YARN would replace")
    escaped = re.sub(r'([$`"\\])', r"\\\1", line)
    return f"{escaped} 1>{LOG_DIR}/stdout 2>{LOG_DIR}/stderr"
