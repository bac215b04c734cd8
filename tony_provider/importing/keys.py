"""What becomes of the keys of another system: one table for each, which the reader goes by and the documents show."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import attrs

from tony_provider.importing.draft import Draft
from tony_provider.runtime.spec.reader import suggestion

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
