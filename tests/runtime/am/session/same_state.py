"""Whether two sessions are in the same state, down to the last counter."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

import attrs

_PLAIN = (str, bytes, int, float, bool, type(None), Enum, re.Pattern, type)
_CURSORS = ("_checked_from",)  # where the next search begins; its result does not depend on that
_CODE = (FunctionType, MethodType, BuiltinFunctionType)


def differences(one: object, other: object) -> list[str]:
    """Where they differ, by the path of attributes and keys."""
    return list(_compared(one, other, "session", set()))


def _compared(one: Any, other: Any, at: str, seen: set[tuple[int, int]]) -> Iterator[str]:
    if one is other or (id(one), id(other)) in seen or isinstance(one, _CODE):
        return
    seen.add((id(one), id(other)))
    if type(one) is not type(other):
        yield f"{at}: {one!r} is not {other!r}"
    elif isinstance(one, _PLAIN):
        if one != other:
            yield f"{at}: {one!r} is not {other!r}"
    elif isinstance(one, dict):
        if list(one) != list(other):
            yield f"{at}: the keys {list(one)} are not {list(other)}"
        for key in one.keys() & other.keys():
            yield from _compared(one[key], other[key], f"{at}[{key!r}]", seen)
    elif isinstance(one, (list, tuple)):
        if len(one) != len(other):
            yield f"{at}: {one!r} is not {other!r}"
        for index in range(min(len(one), len(other))):
            yield from _compared(one[index], other[index], f"{at}[{index}]", seen)
    elif isinstance(one, (set, frozenset)):
        if one != other:
            yield f"{at}: {one!r} is not {other!r}"
    elif names := _names(one):
        for name in names:
            yield from _compared(getattr(one, name), getattr(other, name), f"{at}.{name}", seen)
    elif repr(one) != repr(other):
        yield f"{at}: {one!r} is not {other!r}"


def _names(thing: Any) -> list[str]:
    if attrs.has(type(thing)):
        return [field.name for field in attrs.fields(type(thing)) if field.name not in _CURSORS]
    return list(vars(thing)) if hasattr(thing, "__dict__") else []
