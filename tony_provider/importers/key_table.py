"""What an import gives: a job of ours, and all that it could not take along."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import attrs

from tony_provider.runtime.common.contract import OWN_ENV_PREFIX
from tony_provider.runtime.common.text import one_line
from tony_provider.runtime.jobspec.model import PREPARE, Role
from tony_provider.runtime.jobspec.problems import NOT_GIVEN, shown
from tony_provider.runtime.jobspec.units import ENV_NAME, USER, USER_RULE
from tony_provider.runtime.parsing.reader import suggestion

_SECRET = re.compile(r"password|secret|\.key\.access|token", re.IGNORECASE)


class NotImportable(ValueError):  # noqa: N818 - named for what is wrong
    """Nothing was made of what was given; the message says why, and what to do."""


@attrs.frozen
class NotCarriedOver:
    """One thing of another system's job that ours does not say, or says otherwise."""

    key: str  # as they call it
    why: str  # and what there is instead
    value: object = NOT_GIVEN

    def __str__(self) -> str:
        if self.value is NOT_GIVEN:
            return f"{self.key}: {self.why}"
        value = "…" if _SECRET.search(self.key) else one_line(shown(self.value))
        return f"{self.key} ({value}): {self.why}"


@attrs.frozen
class ImportedJob:
    """A job of another system, as ours."""

    system: str  # as people call it: TonY
    source: str  # where it was read from
    job: Mapping[str, Any]  # a valid job specification
    arguments: Mapping[str, Any]  # of the task of a DAG that runs it, such as retries; the job has no keys for these
    left: Sequence[NotCarriedOver]


KeyPath = tuple[str, ...]

_SERVICE_ROLES = {role.value for role in Role} - {Role.WORKER.value} | {"tensorboard"}
_MOST_LETTERS = 32  # of a task type's name


class Draft:
    """What is known so far. ``origins`` has, for each key that was carried over, theirs."""

    def __init__(self) -> None:
        self.job: dict[str, Any] = {}
        self.arguments: dict[str, Any] = {}
        self.left: list[NotCarriedOver] = []
        self.origins: dict[KeyPath, str] = {}
        self.no_command: dict[str, str] = {}  # by task type: why nobody knows its command
        self.exports = ""  # what every command begins with
        self._types: dict[str, str] = {}  # ours by theirs
        self._told: set[str] = set()  # what was left, by which it is found again
        self._added: set[tuple[KeyPath, str]] = set()  # to lists

    def put(self, path: KeyPath | str, value: Any, key: str) -> None:
        """Set a key of ours, by its path, to what stands at ``key`` of theirs."""
        path = _path(path)
        place = self.job
        for name in path[:-1]:
            place = place.setdefault(name, {})
        place[path[-1]] = value
        self.origins[path] = key

    def add(self, path: KeyPath | str, value: str, key: str) -> None:
        """Append to a list of ours, once."""
        path = _path(path)
        if (path, value) in self._added:
            return
        self._added.add((path, value))
        if found := self.get(path):
            found.append(value)
            self.origins[path] = key
        else:
            self.put(path, [value], key)

    def get(self, path: KeyPath | str) -> Any:
        """What a key of ours has; None: nothing."""
        found: Any = self.job
        for name in _path(path):
            found = found.get(name) if isinstance(found, Mapping) else None
        return found

    def share(self, key: str) -> None:
        """Make a list's elements the job's that every task type has, such as a file that all of them find."""
        lists = [task.get(key, []) for task in self.tasks.values()]
        if not lists:
            return
        shared = set.intersection(*map(set, lists))
        for each in [each for each in lists[0] if each in shared]:
            self.add(key, each, self.origins[("tasks", next(iter(self.tasks)), key)])
        for own in lists:
            own[:] = [each for each in own if each not in shared]

    def remove(self, path: KeyPath) -> Any:
        """Take a key of ours out again, or an element of a list; its value."""
        place: Any = self.job
        for name in path[:-1]:
            place = place[int(name)] if isinstance(place, list) else place[name]
        return place.pop(int(path[-1]) if isinstance(place, list) else path[-1])

    def files(self) -> list[str]:
        """What is said of the job's files, and of those of every task type."""
        places = [self.job, *self.tasks.values()]
        return list(dict.fromkeys(str(each) for place in places for each in place.get("files") or []))

    def leave(self, key: str, why: str, value: object = NOT_GIVEN) -> None:
        """Note that something of theirs is not carried over, once."""
        left = NotCarriedOver(key, why, value)
        if repr(left) not in self._told:
            self._told.add(repr(left))
            self.left.append(left)

    @property
    def tasks(self) -> dict[str, dict[str, Any]]:
        tasks: dict[str, dict[str, Any]] = self.job.setdefault("tasks", {})
        return tasks

    def task_type(self, name: str) -> str:
        """Our name of a task type: one for each of theirs, told where it differs."""
        if name not in self._types:
            ours = re.sub(r"[^a-z0-9_]+", "_", name.lower()).strip("_")[:_MOST_LETTERS] or "task"
            ours = ours if ours[0].isalpha() else f"task_{ours}"[:_MOST_LETTERS]
            while ours in self._types.values():
                ours = f"{ours[: _MOST_LETTERS - 1]}x"
            self._types[name] = ours
            if ours != name:
                self.leave(name, f"is called {ours}: a task type's name has lower-case letters, digits and _")
        return self._types[name]

    def known_type(self, name: str) -> str | None:
        """Our name of a task type that was met already; None: of no such type."""
        return self._types.get(name)

    def service_type(self, name: str) -> str:
        """As ``task_type``, for a system to which names mean nothing: here some of them are roles."""
        if name == PREPARE:
            self._types.setdefault(name, "prepare_service")
            self.leave(name, "is called prepare_service: all others wait for a task type named prepare")
        ours = self.task_type(name)
        if ours in _SERVICE_ROLES:
            self.put(("tasks", ours, "role"), Role.WORKER.value, name)
        return ours


def _path(path: KeyPath | Sequence[str] | str) -> KeyPath:
    return tuple(path.split(".")) if isinstance(path, str) else tuple(path)


Carry = Callable[[Draft, str, Any, Sequence[str]], None]
"""Takes the draft, their key, its value, and the names that stand at the table's ``<…>``, in order."""

TYPE = "<type>"  # in a table: the name of a task type, which ours may have another one for
REST = "<setting>"  # in a table: any text, also with dots; any other name has none
_NAME = re.compile(r"<[^>]+>")
_DOT = "\0"  # in place of one in a name of theirs, which leads nowhere


class BadValue(ValueError):  # noqa: N818 - named for what is wrong
    """A value of theirs is not what its key wants; the text says what is wrong."""


@attrs.frozen
class KeyRule:
    """What becomes of one key."""

    here: str  # the keys of ours, as documents name them; empty: there is none
    carry: Carry
    why: str = ""  # it is not carried over, and this is the reason


def to(here: str, read: Callable[[Any], Any] = lambda value: value) -> KeyRule:
    """It is a key of ours, whose value is what ``read`` makes of theirs; None: not to be set."""

    def carry(draft: Draft, key: str, value: Any, names: Sequence[str]) -> None:
        found = iter(names)
        made = read(value)
        if made is not None:
            draft.put(tuple(_ours(draft, part, found) for part in here.split(".")), made, key)

    return KeyRule(here, carry)


def _ours(draft: Draft, part: str, names: Iterator[str]) -> str:
    if not _NAME.fullmatch(part):
        return part
    return draft.task_type(next(names)) if part == TYPE else next(names)


def argument(name: str, read: Callable[[Any], Any] = lambda value: value) -> KeyRule:
    """It is an argument of the task of a DAG, which the job has no key for."""

    def carry(draft: Draft, key: str, value: Any, _names: Sequence[str]) -> None:
        made = read(value)
        if made is not None:
            draft.arguments[name] = made

    return KeyRule(name, carry)


def left(why: str, here: str = "") -> KeyRule:
    """It is not carried over. ``here``: what of ours does something like it."""
    return KeyRule(here, lambda draft, key, value, _names: draft.leave(key, why, value), why)


def by(carry: Carry, here: str) -> KeyRule:
    """It takes more than a conversion."""
    return KeyRule(here, carry)


def elsewhere(here: str) -> KeyRule:
    """The reader looks at it beside others."""
    return KeyRule(here, lambda _draft, _key, _value, _names: None)


@attrs.frozen
class Keys:
    """The rules of a system by its keys, in which ``<…>`` stands for any name. Dots lead into mappings."""

    rules: Mapping[str, KeyRule]
    _patterns: list[tuple[re.Pattern[str], KeyRule]] = attrs.field(init=False, repr=False)

    @_patterns.default
    def _compiled(self) -> list[tuple[re.Pattern[str], KeyRule]]:
        return [(_pattern(key), rule) for key, rule in self.rules.items() if _NAME.search(key)]

    def find(self, key: str) -> tuple[KeyRule, Sequence[str]] | None:
        """The rule of a key, and the names in it; a rule without ``<…>`` before others."""
        if key in self.rules:
            return self.rules[key], ()
        for pattern, rule in self._patterns:
            if found := pattern.fullmatch(key):
                return rule, [name.replace(_DOT, ".") for name in found.groups()]
        return None

    def carry(self, draft: Draft, key: str, value: Any) -> bool:
        """Do with a key what its rule says; False: there is none."""
        found = self.find(key)
        if found is None:
            return False
        rule, names = found
        told = key.replace(_DOT, ".")
        try:
            rule.carry(draft, told, value, names)
        except BadValue as error:
            draft.leave(told, str(error), value)
        return True

    def carry_all(self, draft: Draft, plain: Mapping[str, Any], above: str = "") -> None:
        """Do so with every key of a mapping, at any depth; one that nobody knows is listed, one without a value not."""
        for name, value in plain.items():
            key = f"{above}{str(name).replace('.', _DOT)}" if above else str(name)
            if value is None or value in ("", {}, []) or self.carry(draft, key, value):
                continue
            if isinstance(value, Mapping) and self._leads_on(key):
                self.carry_all(draft, value, f"{key}.")
            else:
                draft.leave(key.replace(_DOT, "."), f"unknown key{self.hint(key)}", value)

    def hint(self, key: str) -> str:
        """Whether another key was meant: ``; did you mean x?``."""
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
    parts = (
        "(.+)" if part == REST else "([^.]+)" if _NAME.fullmatch(part) else re.escape(part) for part in _split(key)
    )
    return re.compile("".join(parts))


def _split(key: str) -> list[str]:
    return [part for part in re.split(r"(<[^>]+>)", key) if part]


_DECIMAL = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,12})?) *([kmgtp])b", re.IGNORECASE)
_POWERS = "kmgtp"
_TRUE, _FALSE = ("true", "yes", "1"), ("false", "no", "0")


def number(value: Any) -> int:
    """A whole number, also as text."""
    try:
        return int(str(value).strip())
    except ValueError:
        raise BadValue("should be a whole number") from None


def number_of(key: str, value: Any) -> int:
    """A whole number without which nothing can be made of the rest; the error names its key."""
    try:
        return number(value)
    except BadValue as error:
        raise BadValue(f"{key}: {error} (got {shown(value)})") from None


def boolean(value: Any) -> bool:
    """A truth value, also as text."""
    text = str(value).strip().lower()
    if text in (*_TRUE, *_FALSE):
        return text in _TRUE
    raise BadValue("should be true or false")


def positive_or_none(value: Any) -> int | None:
    """A number above zero; None for those by which others mean that there is none."""
    found = number(value)
    return found if found > 0 else None


def milliseconds(value: Any) -> str | None:
    """A duration of so many milliseconds; None for zero and less, which others write for none."""
    found = number(value)
    if found <= 0:
        return None
    return f"{found // 1000}s" if found % 1000 == 0 else f"{found / 1000}s"


def seconds(value: Any) -> str | None:
    """A duration of so many seconds; None for zero and less."""
    found = number(value)
    return f"{found}s" if found > 0 else None


def memory(value: Any) -> Any:
    """Memory as it stands; units of powers of ten, which ours refuses, as so many MiB or more."""
    text = str(value).strip()
    if found := _DECIMAL.fullmatch(text):
        size = float(found[1]) * 1000 ** (_POWERS.index(found[2].lower()) + 1)
        return math.ceil(size / (1 << 20))
    return int(text) if re.fullmatch(r"[0-9]{1,12}", text) else text


def user(value: Any) -> str:
    """Return a user's name. Raises BadValue if it does not match the grammar."""
    if not isinstance(value, str) or not USER.fullmatch(value):
        raise BadValue(USER_RULE)
    return value


def words(value: Any) -> list[str]:
    """The parts of a text between commas, without blanks around them."""
    return [part for part in (each.strip() for each in str(value).split(",")) if part]


def pairs(texts: list[str]) -> dict[str, str]:
    """The mapping of ``NAME=VALUE``; a name without a value has an empty one."""
    return {name: value for name, _, value in (each.partition("=") for each in texts)}


def nested_mapping(given: object, *names: str) -> Mapping[str, Any]:
    """The mapping at a path of names; an empty one where something else stands."""
    for name in names:
        given = given.get(name) if isinstance(given, Mapping) else None
    return given if isinstance(given, Mapping) else {}


def mapping(value: Any) -> Mapping[str, Any]:
    """A mapping of names to whatever there is."""
    if not isinstance(value, Mapping):
        raise BadValue("should be a mapping")
    return value


def listed(value: Any) -> list[Any]:
    """A list of whatever there is."""
    if not isinstance(value, list):
        raise BadValue("should be a list")
    return value


def environment(given: Mapping[str, Any]) -> tuple[dict[str, str], dict[str, str]]:
    """What of an environment can be ours, and why the rest cannot."""
    taken: dict[str, str] = {}
    refused: dict[str, str] = {}
    for name, value in given.items():
        if name.startswith(OWN_ENV_PREFIX):
            refused[name] = f"names that begin with {OWN_ENV_PREFIX} are ours"
        elif not ENV_NAME.fullmatch(name):
            refused[name] = "is no name of a variable"
        else:
            taken[name] = value if isinstance(value, str) else str(value)
    return taken, refused
