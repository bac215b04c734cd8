"""Write a job file in YAML, or a DAG file for a job in the format of ``ruff format``.

If the new file is in another directory, relative paths are adjusted so that they refer to the same files.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from textwrap import wrap
from typing import Any

import attrs
import yaml

from tony_provider.job_files.parameters import Parameter
from tony_provider.job_files.templates import Literal, as_literals, has_literals, has_template
from tony_provider.runtime.common.text import one_line

_RESOURCES = ("files", "archives")


def with_moved_paths(job: Mapping[str, Any], before: Path, after: Path) -> dict[str, Any]:
    """Return the job with its relative paths moved from the base ``before`` to ``after``. Keep names in containers."""
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
    return os.path.relpath(path.parent.resolve() / path.name, after.resolve())  # the name of a link is not resolved


_WIDTH = 116  # maximum characters of a comment line
_ONE_LINE = 1 << 20  # maximum characters of a line, so large that commands are not wrapped


class _Dumper(yaml.SafeDumper):
    """YAML dumper without anchors, with indented lists, and with multi-line text in block style."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    is_shown = all(line.isprintable() for line in text.split("\n"))  # YAML parsers would change NEL
    style = ("|" if "\n" in text else None) if is_shown else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def job_text(job: Mapping[str, Any], comments: Sequence[str] = ()) -> str:
    """Return the job in YAML below ``comments``, each of which is a paragraph."""
    head = "".join(f"{line}\n" for each in comments for line in comment(each))
    return head + yaml.dump(dict(job), Dumper=_Dumper, sort_keys=False, width=_ONE_LINE, allow_unicode=True)


def comment(text: str) -> list[str]:
    """Wrap a paragraph into comment lines. In a list item, indent the lines after the first."""
    text = one_line(text)  # some characters end a line in YAML, and so the comment, but not in Python
    hanging = "#   " if text.startswith("- ") else "# "
    lines = wrap(text, _WIDTH, initial_indent="# ", subsequent_indent=hanging, break_long_words=False)
    return lines or ["#"]


_LINE_WIDTH = 88  # longer values have one element per line; their trailing commas keep ruff from joining them
_STEP = "    "
_CALL = "literal"  # airflow.sdk.literal in a DAG file


def python_literal(value: Any, indent: int = 0, before: int = 0, after: int = 1) -> str:
    """Return the source of a plain value, list or mapping.

    ``indent`` is the indentation level of the value's first line. ``before`` and ``after`` are the numbers of
    characters before and after the value on this line.
    """
    flat = _flat(value)
    fits = len(_STEP) * indent + before + len(flat) + after <= _LINE_WIDTH and "\n" not in flat
    inner = _STEP * (indent + 1)
    if isinstance(value, Literal) and not fits and "\n" not in flat:
        return f"{_CALL}(\n{inner}{_string(value.text)}\n{_STEP * indent})"
    if fits or not isinstance(value, (Mapping, list)) or not value:
        return flat
    if isinstance(value, Mapping):
        lines = []
        for key, each in value.items():
            name = f"{_flat(str(key))}: "
            lines.append(f"{inner}{name}{python_literal(each, indent + 1, len(name))},")
        return "\n".join(["{", *lines, f"{_STEP * indent}}}"])
    lines = [f"{inner}{python_literal(each, indent + 1)}," for each in value]
    return "\n".join(["[", *lines, f"{_STEP * indent}]"])


def _flat(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_flat(str(key))}: {_flat(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_flat, value)) + "]"
    if isinstance(value, Literal):
        return f"{_CALL}({_string(value.text)})"
    return _string(value) if isinstance(value, str) else repr(value)


def _string(text: str) -> str:
    """Quote text with double quotes unless that needs more escapes. Use triple quotes for several lines if possible."""
    if "\n" in text and _reads_as_it_is(text):
        return f'"""{text}"""'
    written = repr(text)
    if written.startswith("'") and (text.count('"') == 0 or text.count("'") > text.count('"')):
        inside = written[1:-1].replace("\\'", "'").replace('"', '\\"')
        return f'"{inside}"'
    return written


def _reads_as_it_is(text: str) -> bool:
    lines = text.split("\n")
    return (
        '"""' not in text
        and "\\" not in text
        and not text.endswith('"')
        and all(line.isprintable() and line == line.rstrip() for line in lines)
    )


_TASK = "train"
_MOST_LETTERS = 200  # maximum characters of a DAG's ID; Airflow's limit is 250
_NOT_IN_AN_ID = re.compile(r"[^A-Za-z0-9_.-]+")


@attrs.frozen
class DagFile:
    """Content of a DAG file."""

    dag_id: str
    job: Mapping[str, Any]
    parameters: Mapping[str, Parameter] = attrs.field(factory=dict)
    arguments: Mapping[str, Any] = attrs.field(factory=dict)  # operator arguments other than the job
    schedule: str | None = None
    start: date = attrs.field(factory=date.today)  # start date of a DAG with a schedule
    origin: str = ""  # source of the job, for the docstring
    notes: Sequence[str] = ()  # notes for readers, in the docstring

    def text(self) -> str:
        """Return Python source in the format of ``ruff format``.

        Texts that look like templates become literals, except in a job with parameters, whose templates are rendered.
        """
        job = dict(self.job) if self.parameters else as_literals(self.job)
        arguments = as_literals(self.arguments)
        parts = [
            self._docstring(),
            "from __future__ import annotations\n",
            self._imports(literals=has_literals([job, arguments])),
            f"JOB = {python_literal(job, before=len('JOB = '), after=0)}\n",
        ]
        body = [f"PARAMS = {self._params()}\n"] if self.parameters else []
        return "\n".join([*parts, *body, self._dag(arguments)])

    def _docstring(self) -> str:
        lines = [f"### {_safe(self.dag_id)}", "", *_paragraph(f"Generated from {self.origin}. You can edit this file.")]
        if self.notes:
            lines += ["", "Not carried over, or changed:", ""]
            lines += [line for note in self.notes for line in _paragraph(f"- {note}", hanging="  ")]
        return '"""\n' + "\n".join(lines) + '\n"""\n'

    def _imports(self, *, literals: bool) -> str:
        names = ["DAG", *(["Param"] if self.parameters else [])]
        scheduled = ["from datetime import datetime\n"] if self.schedule else []
        ours = "from tony_provider.operators.tony import TonyTrainOperator\n"
        # In Airflow 3.0, airflow.sdk does not export `literal`.
        literal = "from airflow.sdk.definitions.template import literal\n" if literals else ""
        return "\n".join([*scheduled, f"from airflow.sdk import {', '.join(names)}\n{literal}{ours}"])

    def _params(self) -> str:
        lines = [f"    {python_literal(name)}: {_param(name, each)},\n" for name, each in self.parameters.items()]
        return "{\n" + "".join(lines) + "}"

    def _dag(self, operator_arguments: Mapping[str, Any]) -> str:
        given = [python_literal(self.dag_id), f"schedule={python_literal(self.schedule)}"]
        if self.schedule:
            begin = f"datetime({self.start.year}, {self.start.month}, {self.start.day})"
            given += [f"start_date={begin}", "catchup=False"]
        given += ["params=PARAMS"] if self.parameters else []
        given += ["doc_md=__doc__"]
        dag = _call("DAG", given, indent=0, before="with ", after=":")
        arguments = [
            f"task_id={python_literal(_TASK)}",
            *(
                f"{name}={python_literal(value, indent=2, before=len(name) + 1)}"
                for name, value in operator_arguments.items()
            ),
        ]
        operator = _call("TonyTrainOperator", [*arguments, "job=JOB"], indent=1)
        return f"with {dag}:\n    {operator}\n"


def dag_id_of(name: str) -> str:
    """Return a valid DAG id made from a job's name."""
    return _NOT_IN_AN_ID.sub("_", name).strip("_.-")[:_MOST_LETTERS] or "training"


def _param(name: str, parameter: Parameter) -> str:
    first = [] if parameter.is_required else [python_literal(parameter.default)]
    given = {"type": parameter.type, **parameter.schema}
    arguments = [*first, *(f"{key}={python_literal(value)}" for key, value in given.items())]
    return _call("Param", arguments, indent=1, before=f"{python_literal(name)}: ", after=",")


def _call(name: str, arguments: Sequence[str], *, indent: int, before: str = "", after: str = "") -> str:
    step = "    " * indent
    flat = f"{name}({', '.join(arguments)})"
    if len(step) + len(before) + len(flat) + len(after) <= _LINE_WIDTH and "\n" not in flat:
        return flat
    lines = "".join(f"{step}    {each},\n" for each in arguments)
    return f"{name}(\n{lines}{step})"


def _paragraph(text: str, hanging: str = "") -> list[str]:
    return wrap(_safe(text), _LINE_WIDTH, subsequent_indent=hanging, break_long_words=False, break_on_hyphens=False)


def _safe(text: str) -> str:
    """Join the text into one line, and escape it for a docstring."""
    return one_line(text).replace("\\", "\\\\").replace('"""', "'''")
