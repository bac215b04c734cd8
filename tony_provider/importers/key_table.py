"""Tables of another system's keys, and the draft of the job that they build.

``Keys`` maps each key of the other system to a rule: set a key of the job, or list the key as not carried over. *Our*
keys and names are in the job specification, *their* keys and names in the other system. The functions at the end
convert single values.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

import attrs

from tony_provider.runtime.common.contract import OWN_ENV_PREFIX
from tony_provider.runtime.common.text import one_line
from tony_provider.runtime.jobspec.model import PREPARE, Role
from tony_provider.runtime.jobspec.problems import NOT_GIVEN, shown, suggestion
from tony_provider.runtime.jobspec.units import ENV_NAME, USER, USER_RULE

_SECRET = re.compile(r"password|secret|\.key\.access|token", re.IGNORECASE)


class NotImportable(ValueError):  # noqa: N818 - named for what is wrong
    """The source cannot be imported; the message gives the reason and a remedy."""


@attrs.frozen
class NotCarriedOver:
    """A part of another system's job that is not carried over, or that has another meaning in a job specification."""

    key: str  # key of the other system
    why: str  # reason, and the alternative in a job specification
    value: object = NOT_GIVEN

    def __str__(self) -> str:
        if self.value is NOT_GIVEN:
            return f"{self.key}: {self.why}"
        value = "…" if _SECRET.search(self.key) else one_line(shown(self.value))
        return f"{self.key} ({value}): {self.why}"


@attrs.frozen
class ImportedJob:
    """A job of another system, converted to a job specification."""

    system: str  # title of the system, such as TonY
    source: str  # file or call that was read
    job: Mapping[str, Any]  # a valid job specification
    arguments: Mapping[str, Any]  # operator arguments, such as retries, for which a job has no keys
    left_out: Sequence[NotCarriedOver]


KeyPath = tuple[str, ...]

TYPE = "<type>"  # in a key of a table: a task type's name, which the import may change
REST = "<setting>"  # in a key of a table: any text, also with dots; other placeholders match no dots
_NAME = re.compile(r"<[^>]+>")

_SERVICE_ROLES = {role.value for role in Role} - {Role.WORKER.value} | {"tensorboard"}
_MOST_LETTERS = 32  # maximum characters of a task type's name


class Draft:
    """A job specification while it is built. ``origins`` maps each key of the job to the other system's key."""

    def __init__(self) -> None:
        self.job: dict[str, Any] = {}
        self.arguments: dict[str, Any] = {}
        self.left_out: list[NotCarriedOver] = []
        self.origins: dict[KeyPath, str] = {}
        self.no_command: dict[str, str] = {}  # task type -> why the import may lack its command, for the error message
        self.exports = ""  # shell command before every task's command, which exports variables
        self._types: dict[str, str] = {}  # the other system's name of a task type -> our name
        self._reported: set[str] = set()  # repr of each item in ``left_out``
        self._added: set[tuple[KeyPath, str]] = set()  # elements added to lists

    def put(self, path: KeyPath | str, value: Any, key: str, names: Sequence[str] = ()) -> None:
        """Set our key at ``path`` to the value of their ``key``. ``names`` fill each ``<…>`` of a dotted path."""
        path = self._path(path, names)
        place = self.job
        for name in path[:-1]:
            place = place.setdefault(name, {})
        place[path[-1]] = value
        self.origins[path] = key

    def add(self, path: KeyPath | str, value: str, key: str) -> None:
        """Append a value to our list at ``path``, unless the value was added before."""
        path = self._path(path)
        if (path, value) in self._added:
            return
        self._added.add((path, value))
        if found := self.get(path):
            found.append(value)
            self.origins[path] = key
        else:
            self.put(path, [value], key)

    def add_file(self, path: KeyPath | str, source: str, name: str, key: str) -> None:
        """Append a file or archive to our list. Add its name in the container if the source's name differs."""
        own_name = PurePosixPath(source).name
        self.add(path, f"{source}::{name}" if (name or own_name) != own_name else source, key)

    def put_environment(
        self, above: KeyPath, given: Mapping[str, Any], key: str, separator: str = "."
    ) -> dict[str, str]:
        """Set environment variables below the path ``above`` of the draft. Record forbidden variables as left out.

        Return the variables that were set. In messages, ``separator`` joins the other system's ``key`` and the name of
        a variable.
        """
        taken: dict[str, str] = {}
        for name, value in given.items():
            variable = f"{key}{separator}{name}"
            if str(name).startswith(OWN_ENV_PREFIX):
                self.leave_out(variable, f"names that begin with {OWN_ENV_PREFIX} are reserved")
            elif not ENV_NAME.fullmatch(str(name)):
                self.leave_out(variable, "is not a valid variable name")
            else:
                taken[name] = str(value)
                self.put((*above, "env", name), taken[name], variable)
        return taken

    def get(self, path: KeyPath | str) -> Any:
        """Return the value of our key, or None."""
        found: Any = self.job
        for name in self._path(path):
            found = found.get(name) if isinstance(found, Mapping) else None
        return found

    def share_files(self) -> None:
        """Move files and archives that all task types have in common to the job's own lists."""
        for key in ("files", "archives") if self.tasks else ():
            lists = [task.get(key, []) for task in self.tasks.values()]
            shared = set.intersection(*map(set, lists))
            for each in [each for each in lists[0] if each in shared]:
                self.add(key, each, self.origins[("tasks", next(iter(self.tasks)), key)])
            for own in lists:
                own[:] = [each for each in own if each not in shared]

    def remove_absent_dependencies(self) -> None:
        """Remove dependencies on task types that do not exist."""
        for name, task in self.tasks.items():
            for other in [each for each in task.get("after", {}) if each not in self.tasks]:
                path = ("tasks", name, "after", other)
                self.leave_out(self.origins[path], f"the job has no task type {other}", self.remove(path))

    def report_servers(self, key: str) -> None:
        """Report a task type that others depend on, because it may be a server that never ends by itself.

        ``key`` is a format string for the key in the message: ``{theirs}`` or ``{ours}`` is the task type's name.
        """
        needed = {other for task in self.tasks.values() for other in task.get("after", {})}
        for theirs, ours in self._types.items():
            if ours in needed:
                why = "the job waits until this type ends; if it serves the others and never ends by itself, give it "
                self.leave_out(key.format(theirs=theirs, ours=ours), f"{why}`role: sidecar`")
                return

    def remove(self, path: KeyPath) -> Any:
        """Remove the key or list element at our path, and return its value."""
        place: Any = self.job
        for name in path[:-1]:
            place = place[int(name)] if isinstance(place, list) else place[name]
        return place.pop(int(path[-1]) if isinstance(place, list) else path[-1])

    def files(self) -> list[str]:
        """Return the files of the job and of all task types."""
        places = [self.job, *self.tasks.values()]
        return list(dict.fromkeys(str(each) for place in places for each in place.get("files") or []))

    def leave_out(self, key: str, why: str, value: object = NOT_GIVEN) -> None:
        """Record that the other system's ``key`` is not carried over, unless the same entry is already recorded."""
        item = NotCarriedOver(key, why, value)
        if repr(item) not in self._reported:
            self._reported.add(repr(item))
            self.left_out.append(item)

    @property
    def tasks(self) -> dict[str, dict[str, Any]]:
        tasks: dict[str, dict[str, Any]] = self.job.setdefault("tasks", {})
        return tasks

    def task_type(self, name: str) -> str:
        """Return our unique and valid name for their task type. Report the name if it differs from theirs."""
        if name not in self._types:
            ours = re.sub(r"[^a-z0-9_]+", "_", name.lower()).strip("_")[:_MOST_LETTERS] or "task"
            ours = ours if ours[0].isalpha() else f"task_{ours}"[:_MOST_LETTERS]
            while ours in self._types.values():
                ours = f"{ours[: _MOST_LETTERS - 1]}x"
            self._types[name] = ours
            if ours != name:
                self.leave_out(name, f"is called {ours}: a task type's name has lower-case letters, digits and _")
        return self._types[name]

    def known_type(self, name: str) -> str:
        """Return our name for their task type, or their name if ``task_type`` was not called for it."""
        return self._types.get(name, name)

    def service_type(self, name: str) -> str:
        """Return our name like ``task_type``, for systems in which the name of a task type implies no role.

        If our name would imply a role, set the role worker.
        """
        if name == PREPARE:
            self._types.setdefault(name, "prepare_service")
            self.leave_out(name, "is called prepare_service: all others wait for a task type named prepare")
        ours = self.task_type(name)
        if ours in _SERVICE_ROLES:
            self.put(("tasks", ours, "role"), Role.WORKER.value, name)
        return ours

    def place(self, names: Sequence[str]) -> KeyPath:
        """Return our path of their task type ``names[0]``, or the path of the job if ``names`` is empty."""
        return ("tasks", self.task_type(names[0])) if names else ()

    def _path(self, path: KeyPath | str, names: Sequence[str] = ()) -> KeyPath:
        if not isinstance(path, str):
            return path
        found = iter(names)
        return tuple(self._part(part, found) for part in path.split("."))

    def _part(self, part: str, names: Iterator[str]) -> str:
        if not _NAME.fullmatch(part):
            return part
        return self.task_type(next(names)) if part == TYPE else next(names)


Carry = Callable[[Draft, str, Any, Sequence[str]], None]
"""Takes the draft, their key, its value, and the names that match ``<…>`` in the table's key, in order."""

_DOT = "\0"  # replaces a dot within their names, because that dot separates no keys


class BadValue(ValueError):  # noqa: N818 - named for what is wrong
    """A value of the other system is invalid for its key; the message gives the reason."""


@attrs.frozen
class KeyRule:
    """Conversion of one key of the other system."""

    here: str  # our keys, for the documentation; empty if no key of ours corresponds
    carry: Carry
    why: str = ""  # why the key is not carried over; empty if the rule carries it over


def mapped_to(here: str, read: Callable[[Any], Any] = lambda value: value) -> KeyRule:
    """Return a rule that sets our key ``here`` to ``read(value)``, unless the result is None."""

    def carry(draft: Draft, key: str, value: Any, names: Sequence[str]) -> None:
        if (made := read(value)) is not None:
            draft.put(here, made, key, names)

    return KeyRule(here, carry)


def argument(name: str, read: Callable[[Any], Any] = lambda value: value) -> KeyRule:
    """Return a rule that sets an argument of the DAG's task, for which a job has no key."""

    def carry(draft: Draft, key: str, value: Any, _names: Sequence[str]) -> None:
        if (made := read(value)) is not None:
            draft.arguments[name] = made

    return KeyRule(name, carry)


def left_out(why: str, here: str = "") -> KeyRule:
    """Return a rule that lists the key as not carried over. ``here`` is our key with a similar purpose."""
    return KeyRule(here, lambda draft, key, value, _names: draft.leave_out(key, why, value), why)


NO_JVM = left_out("nothing runs in a JVM")
NO_SERVER = left_out(
    "no server: a running job has a job page, and an ended job has a directory on the store and a run in Airflow"
)


def carried_by(carry: Carry, here: str) -> KeyRule:
    """Return a rule that calls ``carry``, for keys that need more than a conversion."""
    return KeyRule(here, carry)


def handled_elsewhere(here: Mapping[str, str]) -> dict[str, KeyRule]:
    """Return rules that do nothing, because the importer reads these keys together with others.

    ``here`` maps their keys to ours.
    """
    return {key: KeyRule(ours, lambda _draft, _key, _value, _names: None) for key, ours in here.items()}


@attrs.frozen
class Keys:
    """Rules of a system by key. ``<…>`` in a key matches any name, and dots separate nested mappings."""

    rules: Mapping[str, KeyRule]
    _patterns: list[tuple[re.Pattern[str], KeyRule]] = attrs.field(init=False, repr=False)

    @_patterns.default
    def _compiled(self) -> list[tuple[re.Pattern[str], KeyRule]]:
        return [(_pattern(key), rule) for key, rule in self.rules.items() if _NAME.search(key)]

    def find(self, key: str) -> tuple[KeyRule, Sequence[str]] | None:
        """Return the rule of a key and the names in the key. An exact rule wins over one with ``<…>``."""
        if key in self.rules:
            return self.rules[key], ()
        for pattern, rule in self._patterns:
            if found := pattern.fullmatch(key):
                return rule, [name.replace(_DOT, ".") for name in found.groups()]
        return None

    def carry(self, draft: Draft, key: str, value: Any) -> bool:
        """Apply the rule of a key; returns False if the table has no rule for it."""
        found = self.find(key)
        if found is None:
            return False
        rule, names = found
        plain_key = key.replace(_DOT, ".")
        try:
            rule.carry(draft, plain_key, value, names)
        except BadValue as error:
            draft.leave_out(plain_key, str(error), value)
        return True

    def carry_options(
        self, draft: Draft, given: Iterable[tuple[str, Any]], prefix: str = "", unknown: str = "unknown key"
    ) -> None:
        """Apply the rules to keys and values.

        A key without a rule is left out with the reason ``unknown``. The message names ``prefix`` and the key.
        """
        for key, value in given:
            if not self.carry(draft, key, value):
                draft.leave_out(f"{prefix}{key}", f"{unknown}{self.hint(key)}", value)

    def carry_all(self, draft: Draft, plain: Mapping[str, Any], above: str = "") -> None:
        """Apply the rules to all keys of a mapping, at any depth. List unknown keys unless their values are empty."""
        for name, value in plain.items():
            key = f"{above}{str(name).replace('.', _DOT)}" if above else str(name)
            if value is None or value in ("", {}, []) or self.carry(draft, key, value):
                continue
            if isinstance(value, Mapping) and self._leads_on(key):
                self.carry_all(draft, value, f"{key}.")
            else:
                draft.leave_out(key.replace(_DOT, "."), f"unknown key{self.hint(key)}", value)

    def hint(self, key: str) -> str:
        """Return a suggestion for a mistyped key, such as ``; did you mean x?``, or an empty string."""
        return suggestion(key, list(self.rules)) or suggestion(
            key.rpartition(".")[2], [each.rpartition(".")[2] for each in self.rules]
        )

    def _leads_on(self, key: str) -> bool:
        depth = key.count(".") + 1
        return any(
            _pattern(".".join(parts[:depth])).fullmatch(key)
            for parts in (each.split(".") for each in self.rules)
            if len(parts) > depth
        )

    def __iter__(self) -> Iterator[str]:
        return iter(self.rules)


def _pattern(key: str) -> re.Pattern[str]:
    parts = re.split(r"(<[^>]+>)", key)
    return re.compile(
        "".join("(.+)" if part == REST else "([^.]+)" if _NAME.fullmatch(part) else re.escape(part) for part in parts)
    )


_DECIMAL = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,12})?) *([kmgtp])b", re.IGNORECASE)
_POWERS = "kmgtp"
_TRUE, _FALSE = ("true", "yes", "1"), ("false", "no", "0")


def number(value: Any) -> int:
    """Return an integer, also from text."""
    try:
        return int(str(value).strip())
    except ValueError:
        raise BadValue("should be a whole number") from None


def number_of(key: str, value: Any) -> int:
    """Return an integer that the import requires. The error names its key."""
    try:
        return number(value)
    except BadValue as error:
        raise BadValue(f"{key}: {error} (got {shown(value)})") from None


def boolean(value: Any) -> bool:
    """Return a Boolean, also from text."""
    text = str(value).strip().lower()
    if text in (*_TRUE, *_FALSE):
        return text in _TRUE
    raise BadValue("should be true or false")


def positive_or_none(value: Any) -> int | None:
    """Return a positive integer, or None for zero and less, which other systems use for no value."""
    found = number(value)
    return found if found > 0 else None


def milliseconds(value: Any) -> str | None:
    """Return a duration from milliseconds, or None for zero and less, which other systems use for no limit."""
    found = number(value)
    if found <= 0:
        return None
    return f"{found // 1000}s" if found % 1000 == 0 else f"{found / 1000}s"


def seconds(value: Any) -> str | None:
    """Return a duration from seconds, or None for zero and less."""
    found = number(value)
    return f"{found}s" if found > 0 else None


def memory(value: Any) -> Any:
    """Return a memory size. Decimal units, which a job rejects, are converted to MiB and rounded up."""
    text = str(value).strip()
    if found := _DECIMAL.fullmatch(text):
        size = float(found[1]) * 1000 ** (_POWERS.index(found[2].lower()) + 1)
        return math.ceil(size / (1 << 20))
    return int(text) if re.fullmatch(r"[0-9]{1,12}", text) else text


def user(value: Any) -> str:
    """Return the value if it is a valid user name. Raises BadValue."""
    if not isinstance(value, str) or not USER.fullmatch(value):
        raise BadValue(USER_RULE)
    return value


def words(value: Any) -> list[str]:
    """Return the comma-separated parts of a text, stripped."""
    return [part for part in (each.strip() for each in str(value).split(",")) if part]


def pairs(texts: list[str]) -> dict[str, str]:
    """Return a mapping from texts ``NAME=VALUE``; the value is empty if the text has no ``=``."""
    return {name: value for name, _, value in (each.partition("=") for each in texts)}


def nested_mapping(given: object, *names: str) -> Mapping[str, Any]:
    """Return the mapping at a path of names, or an empty mapping."""
    for name in names:
        given = given.get(name) if isinstance(given, Mapping) else None
    return given if isinstance(given, Mapping) else {}


def mapping(value: Any) -> Mapping[str, Any]:
    """Return the value if it is a mapping. Raises BadValue."""
    if not isinstance(value, Mapping):
        raise BadValue("should be a mapping")
    return value


def listed(value: Any) -> list[Any]:
    """Return the value if it is a list. Raises BadValue."""
    if not isinstance(value, list):
        raise BadValue("should be a list")
    return value
