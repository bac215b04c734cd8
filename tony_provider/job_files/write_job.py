"""Write a job file in YAML.

If the file goes to another directory, its relative paths are changed to lead to the same files.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import wrap
from typing import Any

import yaml

from tony_provider.job_files.templates import has_template
from tony_provider.runtime.common.text import one_line

_RESOURCES = ("files", "archives")


def with_moved_paths(job: Mapping[str, Any], before: Path, after: Path) -> dict[str, Any]:
    """Return the job with relative paths changed from base ``before`` to base ``after``. Names in containers stay."""
    if before.resolve() == after.resolve():
        return dict(job)
    whole = _place(job, before, after)
    if isinstance(tasks := job.get("tasks"), Mapping):
        whole["tasks"] = {
            name: _place(task, before, after) if isinstance(task, Mapping) else task for name, task in tasks.items()
        }
    docker = job.get("docker")
    if isinstance(docker, Mapping) and "client_config" in docker:
        whole["docker"] = {**docker, "client_config": _path(docker["client_config"], before, after)}
    return whole


def _place(given: Mapping[str, Any], before: Path, after: Path) -> dict[str, Any]:
    """Change paths in keys that both the job and its task types can have."""
    whole = dict(given)
    for key in _RESOURCES:
        if isinstance(given.get(key), list):
            whole[key] = [_resource(each, before, after) for each in given[key]]
    environment = given.get("python_env")
    if isinstance(environment, str) and not has_template(environment):
        whole["python_env"] = ",".join(_path(part, before, after) for part in environment.split(","))
    elif isinstance(environment, list):
        whole["python_env"] = [_path(part, before, after) for part in environment]
    return whole


def _resource(given: Any, before: Path, after: Path) -> Any:
    if isinstance(given, Mapping):
        return {**given, "source": _path(given.get("source"), before, after)}
    if not isinstance(given, str):
        return given
    source, separator, name = given.partition("::")
    return f"{_path(source, before, after)}{separator}{name}"


def _path(source: Any, before: Path, after: Path) -> Any:
    if not isinstance(source, str) or "://" in source or source.startswith("/") or has_template(source):
        return source
    path = before / source.strip()
    return os.path.relpath(path.parent.resolve() / path.name, after.resolve())  # a link keeps its own name


_WIDTH = 116  # of comments
_ONE_LINE = 1 << 20  # characters; commands are not wrapped


class _Dumper(yaml.SafeDumper):
    """YAML dumper without anchors, with indented lists, and with multi-line text in block style."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    is_shown = all(line.isprintable() for line in text.split("\n"))  # YAML parsers change line ends such as NEL
    style = ("|" if "\n" in text else None) if is_shown else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def job_text(job: Mapping[str, Any], comments: Sequence[str] = ()) -> str:
    """Return the job in YAML below ``comments``, each of which is a paragraph."""
    head = "".join(f"{line}\n" for each in comments for line in comment(each))
    return head + yaml.dump(dict(job), Dumper=_Dumper, sort_keys=False, width=_ONE_LINE, allow_unicode=True)


def comment(text: str) -> list[str]:
    """Return a paragraph as lines of a comment; the lines below a hyphen are indented."""
    text = one_line(text)  # some characters end a comment in YAML, although Python does not take them for line ends
    hanging = "#   " if text.startswith("- ") else "# "
    lines = wrap(text, _WIDTH, initial_indent="# ", subsequent_indent=hanging, break_long_words=False)
    return lines or ["#"]
