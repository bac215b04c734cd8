"""Read plain values into the model's classes, by their annotations, and collect all problems."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, Union, get_args, get_origin

import attrs

from tony_provider.runtime.common.quantities import ResourceAmount
from tony_provider.runtime.common.text import is_writable
from tony_provider.runtime.jobspec.model import (
    AclSpec,
    AmSpec,
    CheckpointSpec,
    ContainerRuntime,
    Docker,
    Duration,
    HadoopSpec,
    InputSpec,
    JobSpec,
    LogSpec,
    Memory,
    Moment,
    OpenHours,
    OutputSpec,
    PortRange,
    Processes,
    PythonEnv,
    Resource,
    RestartPolicy,
    TaskSpec,
    TensorBoardSpec,
    Timeouts,
    Tolerance,
    Windows,
    unmarked,
)
from tony_provider.runtime.jobspec.placement import Placement, PlacementConstraint
from tony_provider.runtime.jobspec.problems import NOT_GIVEN, Problem, child, item, suggestion
from tony_provider.runtime.jobspec.units import (
    UnitError,
    parse_boolean,
    parse_duration,
    parse_integer,
    parse_memory,
    parse_moment,
    parse_open_hours,
    parse_processes,
    parse_python_env,
    parse_resource_amount,
    parse_tolerance,
)

_UNREADABLE: Any = object()
_STAND_INS: dict[Any, Any] = {
    str: "",
    int: 0,
    Resource: Resource(""),
    OpenHours: OpenHours(""),
    PlacementConstraint: PlacementConstraint(),
}  # for elements of a list that cannot be read

_AMOUNTS: dict[Any, Callable[[object], Any]] = {
    Memory: parse_memory,
    Duration: parse_duration,
    Moment: parse_moment,
    Tolerance: parse_tolerance,
    OpenHours: parse_open_hours,
    Processes: parse_processes,
    PythonEnv: parse_python_env,
    ResourceAmount: parse_resource_amount,
    int: parse_integer,
    bool: parse_boolean,
}

# Classes with a short form: the types of its value, and the function that expands the value to a mapping.
_SHORT_FORMS: dict[Any, tuple[Any, Callable[[Any], Mapping[str, Any]]]] = {
    InputSpec: (str, lambda value: {"paths": [value]}),
    OutputSpec: (str, lambda value: {"path": value}),
    Windows: ((str, list), lambda value: {"open": [value] if isinstance(value, str) else value}),
}

# Classes that may be written as true or false: the mapping for each value, and the message for other values.
_TRUTH_VALUES: dict[Any, tuple[Mapping[bool, Any], str]] = {
    TensorBoardSpec: (
        {True: TensorBoardSpec(), False: None},
        "must be true, false or a mapping such as {memory: 1GiB}",
    ),
    HadoopSpec: ({True: HadoopSpec(), False: None}, "must be true, false or a mapping such as {hive: true}"),
    Docker: (
        {False: Docker(runtime=ContainerRuntime.NONE)},
        "must be a mapping such as {image: registry/name:tag}, or false for no image",
    ),
}

_LEVELS: tuple[tuple[type[Any], str], ...] = (
    (JobSpec, "the top level"),
    (TaskSpec, "tasks.<type>"),
    (Placement, "tasks.<type>.placement"),
    (PlacementConstraint, "tasks.<type>.placement.constraints"),
    (AmSpec, "am"),
    (Timeouts, "timeouts"),
    (Windows, "windows"),
    (Docker, "docker"),
    (RestartPolicy, "restart"),
    (CheckpointSpec, "checkpoint"),
    (AclSpec, "acls"),
    (LogSpec, "logs"),
    (HadoopSpec, "hadoop"),
    (TensorBoardSpec, "tensorboard"),
    (InputSpec, "inputs.<name>"),
    (OutputSpec, "outputs.<name>"),
)


class Reader:
    """Reader of one specification. ``problems`` lists what is wrong; unreadable values keep their defaults."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.values_as_written: dict[str, object] = {}  # amounts by path, as written
        self.partly_read: set[str] = set()  # paths of mappings from which an invalid element was removed

    def read_job(self, value: Mapping[str, Any]) -> JobSpec:
        """Return the job as far as it is readable. The job is usable only if ``problems`` is empty."""
        job: JobSpec = self._object(JobSpec, value, "")
        return job

    def _fail(self, path: str, value: object, message: str) -> Any:
        self.problems.append(Problem(path, value, message))
        return _UNREADABLE

    def _read(self, wanted: Any, value: object, path: str) -> Any:
        origin = get_origin(wanted)
        if origin is Union:  # Optional is the only union here; the caller has handled null
            return None if value == "" else self._read(get_args(wanted)[0], value, path)
        if origin is list:
            return self._list(get_args(wanted)[0], value, path)
        if origin is dict:
            return self._dict(get_args(wanted)[1], value, path)
        if wanted in _AMOUNTS:
            return self._amount(_AMOUNTS[wanted], value, path)
        if wanted is str:
            return self._text(value, path)
        if wanted is Resource:
            return self._resource(value, path)
        if wanted is PortRange:
            return self._port_range(value, path)
        if wanted in _TRUTH_VALUES and not isinstance(value, Mapping):
            return self._truth_value(*_TRUTH_VALUES[wanted], value, path)
        if issubclass(wanted, Enum):
            return self._enum(wanted, value, path)
        kinds, expand = _SHORT_FORMS.get(wanted, ((), dict))
        return self._object(wanted, expand(value) if isinstance(value, kinds) else value, path)

    def _amount(self, parse: Callable[[object], Any], value: object, path: str) -> Any:
        self.values_as_written[path] = value
        try:
            return parse(value)
        except UnitError as error:
            return self._fail(path, value, str(error))

    def _text(self, value: object, path: str) -> Any:
        if not isinstance(value, str):
            return self._fail(path, value, "must be text")
        if "\0" in value:
            return self._fail(path, value, "must not contain a NUL character")
        if not is_writable(value):
            return self._fail(path, value, "must not contain an unpaired surrogate")
        return value

    def _scalar_as_text(self, value: object, path: str) -> Any:
        """Convert a number or truth value of an environment variable to the text that YAML and JSON use for it."""
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, (int, float)):
            try:
                return repr(value)
            except ValueError as error:  # Python refuses to convert integers of thousands of digits
                return self._fail(path, NOT_GIVEN, str(error))
        return self._text(value, path)

    def _enum(self, wanted: type[Enum], value: object, path: str) -> Any:
        allowed = [str(member.value) for member in wanted]
        if isinstance(value, str) and value in allowed:
            return wanted(value)
        hint = suggestion(value, allowed) if isinstance(value, str) else ""
        return self._fail(path, value, f"must be one of {', '.join(allowed)}{hint}")

    def _list(self, wanted: Any, value: object, path: str) -> Any:
        if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
            return self._fail(path, value, "must be a list")
        result = []
        for index, element in enumerate(value):
            below = item(path, index)
            if element is None:
                read = self._fail(below, element, "must not be null")
            else:
                read = self._read(wanted, element, below)
            # A stand-in keeps the indices of the following elements.
            result.append(_STAND_INS[wanted] if read is _UNREADABLE else read)
        return result

    def _dict(self, wanted: Any, value: object, path: str) -> Any:
        if not isinstance(value, Mapping):
            return self._fail(path, value, "must be a mapping")
        result = {}
        for key, element in value.items():
            below = child(path, key)
            if not isinstance(key, str):
                self._fail(below, key, "a key must be text")
                self.partly_read.add(path)
            elif element is not None:
                read = self._scalar_as_text(element, below) if wanted is str else self._read(wanted, element, below)
                if read is _UNREADABLE:
                    self.partly_read.add(path)
                else:
                    result[key] = read
        return result

    def _object(self, wanted: type[Any], value: object, path: str) -> Any:
        if not isinstance(value, Mapping):
            return self._fail(path, value, "must be a mapping")
        fields = attrs.fields(attrs.resolve_types(wanted))
        self._refuse_unknown(wanted, [field.name for field in fields], value, path)
        arguments: dict[str, Any] = {}
        for field in fields:
            below = child(path, field.name)
            given = value.get(field.name)
            read = _UNREADABLE
            if given is not None:
                read = self._read(field.type, given, below)
            elif field.default is attrs.NOTHING:
                self._fail(below, NOT_GIVEN, "is required")
            if read is not _UNREADABLE:
                arguments[field.name] = read
            elif field.default is attrs.NOTHING:
                origin = get_origin(field.type)
                arguments[field.name] = origin() if origin else "?"  # a stand-in, never returned
        return wanted(**arguments)

    def _refuse_unknown(self, level: type[Any], allowed: list[str], value: Mapping[Any, Any], path: str) -> None:
        for key in value:
            if key in allowed:
                continue
            hint = ""
            if isinstance(key, str):
                hint = suggestion(key, allowed)
                others = [where for cls, where in _LEVELS if cls is not level and key in attrs.fields_dict(cls)]
                if not hint and others:
                    hint = f"; it belongs under {' or '.join(others)}"
            self._fail(child(path, key), value[key], f"unknown key{hint or '; allowed: ' + ', '.join(allowed)}")

    def _resource(self, value: object, path: str) -> Any:
        if isinstance(value, Mapping):
            return self._object(Resource, value, path)
        if not isinstance(value, str):
            return self._fail(path, value, "must be SRC, SRC::NAME or {source: …, name: …}")
        text = self._text(value, path)
        if text is _UNREADABLE:
            return text
        written, stored = unmarked(text)
        source, separator, name = written.partition("::")
        if "::" in name or (separator and not name):
            return self._fail(path, value, "must be SRC or SRC::NAME; write a source with '::' as {source: …, name: …}")
        return Resource(source, name or None, stored)

    def _truth_value(self, values: Mapping[bool, Any], message: str, value: object, path: str) -> Any:
        try:
            return values[parse_boolean(value)]
        except (UnitError, KeyError):
            return self._fail(path, value, message)

    def _port_range(self, value: object, path: str) -> Any:
        if isinstance(value, Mapping):
            before = len(self.problems)
            ports = self._object(PortRange, value, path)
            return ports if len(self.problems) == before else _UNREADABLE
        if isinstance(value, str):
            first, separator, last = value.partition("-")
            try:
                if separator:
                    return PortRange(parse_integer(first), parse_integer(last))
            except UnitError:
                pass
        return self._fail(path, value, "must be a range of two ports, such as 20000-31999")
