"""Pickles read without running them: what they say in plain numbers, texts, lists, tuples and dictionaries.

A pickle is a program, and loading one runs it; nothing here does. Whatever a pickle would make by a call is opaque.
"""

from __future__ import annotations

import pickletools
from typing import Any, BinaryIO, Optional

from tony_provider.runtime.checkpoint.formats.directory_view import Unreadable

_LITERALS = frozenset({"NONE", "NEWTRUE", "NEWFALSE", "EMPTY_DICT", "EMPTY_LIST", "EMPTY_TUPLE"})
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_MARK = object()


class Opaque:
    """Something in a pickle that only running it would make; ``name`` when it is a class or function."""

    def __init__(self, name: str = "") -> None:
        self.name = name


class Plain:
    """The plain content of a pickle: ``value``.

    ``states`` are what its objects would be made of, in their order; ``persistent`` are the references to data that lie
    outside of it.
    """

    def __init__(self) -> None:
        self.value: Any = None
        self.states: list[Any] = []
        self.persistent: list[Any] = []


def read(file: BinaryIO) -> Plain:
    """The content of the next pickle of a file, which then stands behind it.

    Raises Unreadable when it is cut short or none.
    """
    machine = _Machine()
    try:
        for opcode, argument, _ in pickletools.genops(file):
            machine.do(opcode, argument)
    except (ValueError, IndexError, KeyError, TypeError, AttributeError, OverflowError, MemoryError) as error:
        raise Unreadable(f"it is cut short or damaged: {error}") from error
    return machine.plain


class _Machine:
    def __init__(self) -> None:
        self.plain = Plain()
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}

    def do(self, opcode: Any, argument: Any) -> None:
        action = getattr(self, f"_{opcode.name.lower()}", None)
        if action is not None:
            action(argument)
        elif opcode.name in _LITERALS:
            self._stack.append(_literal(opcode.name))
        elif opcode.name in _TUPLES:
            self._stack.append(tuple(self._take(_TUPLES[opcode.name])))
        elif not opcode.stack_before and len(opcode.stack_after) == 1:
            self._stack.append(argument)  # a number or text
        else:
            self._other(opcode)

    def _other(self, opcode: Any) -> None:
        """An operation that makes something opaque, or nothing, of what is on the stack."""
        before = opcode.stack_before
        if pickletools.markobject in before:
            self._to_mark()
            before = before[: before.index(pickletools.markobject)]
        self._take(len(before))
        self._stack.extend(Opaque() for _ in opcode.stack_after)

    def _take(self, count: int) -> list[Any]:
        if count > len(self._stack):
            raise ValueError("it takes more than there is")
        taken = self._stack[len(self._stack) - count :]
        del self._stack[len(self._stack) - count :]
        return taken

    def _to_mark(self) -> list[Any]:
        taken: list[Any] = []
        while (top := self._stack.pop()) is not _MARK:
            taken.append(top)
        return taken[::-1]

    def _mark(self, _: None) -> None:
        self._stack.append(_MARK)

    def _stop(self, _: None) -> None:
        self.plain.value = self._stack.pop()

    def _tuple(self, _: None) -> None:
        self._stack.append(tuple(self._to_mark()))

    def _list(self, _: None) -> None:
        self._stack.append(self._to_mark())

    def _dict(self, _: None) -> None:
        self._stack.append(_paired({}, self._to_mark()))

    def _append(self, _: None) -> None:
        self._extend(self._take(1))

    def _appends(self, _: None) -> None:
        self._extend(self._to_mark())

    def _extend(self, items: list[Any]) -> None:
        if isinstance(self._stack[-1], list):
            self._stack[-1].extend(items)

    def _setitem(self, _: None) -> None:
        items = self._take(2)
        _paired(self._stack[-1], items)

    def _setitems(self, _: None) -> None:
        items = self._to_mark()
        _paired(self._stack[-1], items)

    def _build(self, _: None) -> None:
        self.plain.states.append(self._stack.pop())

    def _reduce(self, _: None) -> None:
        function, _arguments = self._take(2)
        ordered = isinstance(function, Opaque) and function.name == "collections OrderedDict"
        self._stack.append({} if ordered else Opaque())

    def _global(self, name: str) -> None:
        self._stack.append(Opaque(name))

    def _stack_global(self, _: None) -> None:
        module, name = self._take(2)
        self._stack.append(Opaque(f"{module} {name}"))

    def _binpersid(self, _: None) -> None:
        self.plain.persistent.append(self._stack.pop())
        self._stack.append(Opaque())

    def _put(self, number: int) -> None:
        self._memo[number] = self._stack[-1]

    _binput = _long_binput = _put

    def _memoize(self, _: None) -> None:
        self._memo[len(self._memo)] = self._stack[-1]

    def _get(self, number: int) -> None:
        self._stack.append(self._memo[number])

    _binget = _long_binget = _get

    def _dup(self, _: None) -> None:
        self._stack.append(self._stack[-1])

    def _pop(self, _: None) -> None:
        self._stack.pop()

    def _pop_mark(self, _: None) -> None:
        self._to_mark()


def _literal(name: str) -> Any:
    fresh: dict[str, Any] = {"EMPTY_DICT": {}, "EMPTY_LIST": [], "EMPTY_TUPLE": ()}
    return fresh.get(name, {"NEWTRUE": True, "NEWFALSE": False}.get(name))


def _paired(target: Any, items: list[Any]) -> Any:
    """Only what has a text for its key is kept."""
    if isinstance(target, dict):
        target.update((key, value) for key, value in zip(items[::2], items[1::2]) if isinstance(key, str))
    return target


def number_at(value: Any, *keys: str) -> Optional[int]:
    """The first whole number from 0 on that a dictionary has under one of these keys, in upper or lower case.

    None when there is none.
    """
    if not isinstance(value, dict):
        return None
    said = {key.lower(): number for key, number in value.items() if isinstance(key, str)}
    for key in keys:
        number = said.get(key)
        if isinstance(number, int) and not isinstance(number, bool) and number >= 0:
            return number
    return None
