"""Read plain numbers, texts, lists, tuples and dictionaries from pickles without running them.

A pickle is a program that runs when it is loaded. This module never runs it. Results of calls are opaque.

Only numbers and texts of a pickle are hashed, compared or formatted. A hundred bytes can describe nested tuples for
which these operations would never end.
"""

from __future__ import annotations

import pickletools
from collections.abc import Iterator
from typing import Any, BinaryIO, Optional

from tony_provider.runtime.checkpoint.content.zips import Unreadable, is_count

_LITERALS = frozenset({"NONE", "NEWTRUE", "NEWFALSE", "EMPTY_DICT", "EMPTY_LIST", "EMPTY_TUPLE"})
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_MARK = object()
_MOST_OPERATIONS = 5_000_000  # enough for 100,000 tensors; each operation may create an object of 70 bytes
_LONGEST = 64 << 10  # bytes of a text, or of other data; longer data is skipped
_LONGEST_LINE = 1 << 20  # bytes
_LONGEST_NUMBER = 4000  # digits
_PIECE = 1 << 20  # bytes of skipped data that are read at a time
# Operations whose data begins with its length, and the size of the length in bytes.
_COUNTED = {"BINBYTES": 4, "BINUNICODE": 4, "BINSTRING": 4, "LONG4": 4}
_COUNTED |= {"BINBYTES8": 8, "BYTEARRAY8": 8, "BINUNICODE8": 8}
_OPERATIONS = {each.code.encode("latin-1"): each for each in pickletools.opcodes}


class OpaqueObject:
    """An object that only a run of the pickle would create. ``name``: of a class or function, otherwise empty."""

    __slots__ = ("name",)

    def __init__(self, name: str = "") -> None:
        self.name = name


_NAMELESS = OpaqueObject()


class PickleContent:
    """The plain content of a pickle: ``value``.

    ``states`` are the states of its objects, in order. ``persistent`` are the references to data outside of the
    pickle.
    """

    def __init__(self) -> None:
        self.value: Any = None
        self.states: list[Any] = []
        self.persistent: list[Any] = []


def read(file: BinaryIO) -> PickleContent:
    """Read the next pickle of a file and return its content.

    Raises Unreadable if it is truncated or not a pickle.
    """
    machine = _Machine()
    try:
        for opcode, argument in _operations(_Source(file)):
            machine.do(opcode, argument)
    except (ValueError, IndexError, KeyError, TypeError, AttributeError, OverflowError, MemoryError) as error:
        raise Unreadable(f"it is cut short or damaged: {error}") from error
    return machine.plain


class _Source:
    """A file for ``pickletools`` with a limit on the length of lines."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.longest_line = _LONGEST_LINE

    def read(self, count: int) -> bytes:
        return self._file.read(count)

    def exactly(self, count: int) -> bytes:
        data = self._file.read(count)
        if len(data) < count:
            raise ValueError("it ends too early")
        return data

    def skip(self, count: int) -> None:
        while count:
            count -= len(self.exactly(min(count, _PIECE)))

    def readline(self) -> bytes:
        line = self._file.readline(self.longest_line)
        if len(line) == self.longest_line:
            raise ValueError(f"a line has {len(line)} bytes, or more")
        return line


def _operations(source: _Source) -> Iterator[tuple[Any, Any]]:
    """Yield operations like ``pickletools.genops``, with Opaque in place of long data."""
    for _ in range(_MOST_OPERATIONS):
        opcode = _OPERATIONS[source.exactly(1)]
        if opcode.name in _COUNTED:
            yield opcode, _counted(source, opcode.name)
        elif opcode.arg is None:
            yield opcode, None
        else:
            source.longest_line = _LONGEST_NUMBER if opcode.name in ("INT", "LONG") else _LONGEST_LINE
            yield opcode, opcode.arg.reader(source)  # type: ignore[arg-type]
        if opcode.name == "STOP":
            return
    raise ValueError(f"it has more than {_MOST_OPERATIONS} operations")


def _counted(source: _Source, name: str) -> Any:
    count = int.from_bytes(source.exactly(_COUNTED[name]), "little")
    if count > (_LONGEST_NUMBER if name == "LONG4" else _LONGEST):
        source.skip(count)
        return _NAMELESS
    data = source.exactly(count)
    if name == "LONG4":
        return int.from_bytes(data, "little", signed=True)
    if name == "BINSTRING":
        return data.decode("latin-1")
    return data.decode("utf-8", "surrogatepass") if "UNICODE" in name else data


class _Machine:
    def __init__(self) -> None:
        self.plain = PickleContent()
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
        """Apply an operation that replaces values of the stack by opaque objects or removes them."""
        before = opcode.stack_before
        if pickletools.markobject in before:
            self._to_mark()
            before = before[: before.index(pickletools.markobject)]
        self._take(len(before))
        self._stack.extend(_NAMELESS for _ in opcode.stack_after)

    def _take(self, count: int) -> list[Any]:
        if count > len(self._stack):
            raise ValueError("it takes more values than the stack has")
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
        ordered = isinstance(function, OpaqueObject) and function.name == "collections OrderedDict"
        self._stack.append({} if ordered else _NAMELESS)

    def _global(self, name: str) -> None:
        self._stack.append(OpaqueObject(name))

    def _stack_global(self, _: None) -> None:
        module, name = self._take(2)
        is_named = isinstance(module, str) and isinstance(name, str)
        self._stack.append(OpaqueObject(f"{module} {name}") if is_named else _NAMELESS)

    def _binpersid(self, _: None) -> None:
        self.plain.persistent.append(self._stack.pop())
        self._stack.append(_NAMELESS)

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
    """Add pairs with text keys to a dictionary, and drop other pairs."""
    if isinstance(target, dict):
        target.update((key, value) for key, value in zip(items[::2], items[1::2]) if isinstance(key, str))
    return target


def number_at(value: Any, *keys: str) -> Optional[int]:
    """Return the first whole number from 0 on that a dictionary has under one of these keys, or None.

    Upper and lower case are equal.
    """
    if not isinstance(value, dict):
        return None
    numbers = {key.lower(): number for key, number in value.items() if isinstance(key, str)}
    for key in keys:
        number: Any = numbers.get(key)
        if is_count(number):
            return int(number)
    return None
