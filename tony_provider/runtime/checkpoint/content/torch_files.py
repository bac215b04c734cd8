"""Files of PyTorch: ``.safetensors``, ``torch.save``, distributed checkpoints, shard indexes, trainer state.

A pickle is a program that runs when it is loaded. This module never runs it, but reads the plain values in it: numbers,
texts, lists, tuples and dictionaries. An OpaqueObject stands for the result of a call.

Only numbers and texts of a pickle may be hashed, compared or formatted. A pickle of a hundred bytes can describe nested
tuples for which these operations would take forever.

A ``.safetensors`` file is complete if its size matches the offsets in its header.
"""

from __future__ import annotations

import os
import pickletools
from collections.abc import Iterator
from pathlib import Path
from posixpath import basename
from typing import Any, BinaryIO, Optional

import attrs

from tony_provider.runtime.checkpoint.content import zips
from tony_provider.runtime.checkpoint.content.zips import Unreadable, is_count, json_object
from tony_provider.runtime.common.bounds import BoundedJsonError, read_json

_LITERALS = frozenset({"NONE", "NEWTRUE", "NEWFALSE", "EMPTY_DICT", "EMPTY_LIST", "EMPTY_TUPLE"})
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_MARK = object()
_MOST_OPERATIONS = 5_000_000  # limit for each pickle: enough for 100,000 tensors; an operation may need 70 bytes
_LONGEST = 64 << 10  # bytes; longer items of a pickle are skipped
_LONGEST_LINE = 1 << 20  # maximum bytes of a line in a pickle
_LONGEST_NUMBER = 4000  # maximum digits of a number in a pickle, or bytes in binary form
_PIECE = 1 << 20  # bytes of skipped data that are read at a time
# Operations whose data begins with a length field, and the size of this field in bytes.
_COUNTED = {"BINBYTES": 4, "BINUNICODE": 4, "BINSTRING": 4, "LONG4": 4}
_COUNTED |= {"BINBYTES8": 8, "BYTEARRAY8": 8, "BINUNICODE8": 8}
_OPERATIONS = {each.code.encode("latin-1"): each for each in pickletools.opcodes}


class OpaqueObject:
    """Placeholder for an object that only the execution of a pickle would create.

    ``name`` is the name of the class or function. It is empty for all other objects.
    """

    __slots__ = ("name",)

    def __init__(self, name: str = "") -> None:
        self.name = name


_NAMELESS = OpaqueObject()


class PickleContent:
    """The plain values of a pickle.

    ``value`` is the pickled value. ``states`` are the states of its objects, in the order of the pickle. ``persistent``
    are the persistent IDs: references to data outside of the pickle.
    """

    def __init__(self) -> None:
        self.value: Any = None
        self.states: list[Any] = []
        self.persistent: list[Any] = []


def read(file: BinaryIO) -> PickleContent:
    """Read the next pickle of a file and return its content.

    Raises Unreadable if the file contains no pickle at its position, or a truncated pickle.
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
    """Yield opcodes and arguments like ``pickletools.genops``. Long data is replaced by an OpaqueObject."""
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
        """Apply any other operation: pop the values that it uses, and push an OpaqueObject for each result."""
        before = opcode.stack_before
        if pickletools.markobject in before:
            self._to_mark()
            before = before[: before.index(pickletools.markobject)]
        self._take(len(before))
        self._stack.extend(_NAMELESS for _ in opcode.stack_after)

    def _take(self, count: int) -> list[Any]:
        if count > len(self._stack):
            raise ValueError("an operation uses more values than the stack has")
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
    """Add the pairs of ``items`` whose keys are texts to ``target``, if it is a dictionary. Return ``target``."""
    if isinstance(target, dict):
        target.update((key, value) for key, value in zip(items[::2], items[1::2]) if isinstance(key, str))
    return target


def number_at(value: Any, *keys: str) -> Optional[int]:
    """Try keys in order, and return the first non-negative integer that a dictionary has for a key, or None.

    The case of keys is ignored. Returns None if ``value`` is not a dictionary.
    """
    if not isinstance(value, dict):
        return None
    numbers = {key.lower(): number for key, number in value.items() if isinstance(key, str)}
    for key in keys:
        number: Any = numbers.get(key)
        if is_count(number):
            return int(number)
    return None


_LONGEST_HEADER = 100 << 20  # bytes; the format's specification has the same limit


def check_safetensors(path: Path) -> None:
    """Check that a ``.safetensors`` file is complete. Raises Unreadable, OSError."""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(0)
        length = int.from_bytes(file.read(8), "little")
        if length > min(_LONGEST_HEADER, size - 8):
            raise Unreadable(f"its header cannot be read: it would have {length} bytes")
        header = file.read(length)
    try:
        tensors = [entry for name, entry in read_json(header).items() if name != "__metadata__"]
        ends = [entry["data_offsets"][1] for entry in tensors]
    except (BoundedJsonError, TypeError, LookupError, AttributeError) as error:
        raise Unreadable(f"its header cannot be read: {error}") from error
    if not all(map(is_count, ends)):
        raise Unreadable("its header cannot be read: an offset in it is not a number of bytes")
    end = 8 + length + max(ends, default=0)
    if size != end:
        raise Unreadable(f"it has {size} bytes instead of {end}")


SUFFIXES = (".pth.tar", ".pt", ".pth", ".ckpt", ".safetensors")
OLD_MAGIC = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19."
PICKLE = b"\x80"
_LONGEST_PICKLE = 64 << 20  # bytes; longer pickles are not read, because only the step and epoch are needed
_STEPS = ("global_step", "step", "iteration", "iter", "iter_num", "step_num")
_EPOCHS = ("epoch", "epochs_run")  # "epochs" and "steps" are left out, because they are totals
_BYTES = {"Double": 8, "Long": 8, "ComplexFloat": 8, "ComplexDouble": 16, "Float": 4, "Int": 4, "QInt32": 4}
_BYTES |= {"Half": 2, "BFloat16": 2, "Short": 2, "Byte": 1, "Char": 1, "Bool": 1, "QInt8": 1, "QUInt8": 1}


@attrs.frozen
class TorchFile:
    """Content of a complete file of ``torch.save``."""

    step: Optional[int]  # step in the content; None if there is none
    epoch: Optional[int]
    is_sure: bool  # False if the file may be truncated, because its end could not be checked


def read_torch_file(path: Path) -> TorchFile:
    """Check that a file is complete, and return its step and epoch. Raises Unreadable, OSError."""
    if path.name.endswith(".safetensors"):
        check_safetensors(path)
        return TorchFile(None, None, True)
    with path.open("rb") as file:
        beginning = file.read(len(OLD_MAGIC))
        if beginning.startswith(zips.ZIP_MAGIC):
            return _archive(path)
        if not beginning.startswith(PICKLE):
            raise Unreadable("it is empty" if not beginning else "it is neither a zip archive nor a pickle")
        file.seek(0)
        return _old(file) if beginning == OLD_MAGIC else _plain_pickle(file)


def _archive(path: Path) -> TorchFile:
    with zips.open_zip(path) as archive:
        top = next((name for name in archive.namelist() if basename(name) == "data.pkl"), None)
        if top is None:
            raise Unreadable("it contains no data.pkl")
        if not zips.check_zip(archive) or archive.getinfo(top).file_size > _LONGEST_PICKLE:
            return TorchFile(None, None, True)
        with archive.open(top) as data:
            return _described_by(read(data), True)  # type: ignore[arg-type]


def _described_by(pickle: PickleContent, is_sure: bool) -> TorchFile:
    value = pickle.value
    return TorchFile(number_at(value, *_STEPS), number_at(value, *_EPOCHS), is_sure)


def _plain_pickle(file: BinaryIO) -> TorchFile:
    pickle = read(file)
    if file.read(1):
        raise Unreadable("unexpected data follows its pickle")
    return _described_by(pickle, True)


def _old(file: BinaryIO) -> TorchFile:
    """Read a file in the format of PyTorch before 1.6.

    The file contains five pickles, then the storages of the object. The pickles are the magic number, the version, the
    system, the object, and the keys of the storages.
    """
    for _ in range(3):
        read(file)
    what = read(file)
    keys = read(file).value
    # Accept only texts as keys, because hashing a nested tuple may take forever.
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
        raise Unreadable("it lists no storages")
    sizes = {entry[2]: _element_size(entry[1]) for entry in what.persistent if _is_storage(entry)}
    for key in keys:
        size = sizes.get(key)
        count = int.from_bytes(_exactly(file, 8), "little")
        if size is None:
            return _described_by(what, False)  # the size is unknown, so the next storage cannot be found
        _skip(file, count * size)
    return _described_by(what, True)


def _is_storage(entry: object) -> bool:
    return isinstance(entry, tuple) and len(entry) >= 3 and entry[0] == "storage" and isinstance(entry[2], str)


def _element_size(storage: object) -> Optional[int]:
    name = storage.name if isinstance(storage, OpaqueObject) else ""
    return _BYTES.get(name.rpartition(" ")[2].replace("Storage", ""))


def _exactly(file: BinaryIO, count: int) -> bytes:
    data = file.read(count)
    if len(data) < count:
        raise Unreadable("it is cut short")
    return data


def _skip(file: BinaryIO, count: int) -> None:
    if count > os.fstat(file.fileno()).st_size - file.tell():
        raise Unreadable("it is cut short")
    file.seek(count, 1)


_MOST_BYTES = 32 << 20  # size limit of an index


def shard_ends(path: Path) -> dict[str, int]:
    """Return the minimum size in bytes of each file of a distributed checkpoint, from its ``.metadata`` file.

    The metadata contain a ``_StorageInfo`` for each tensor: file, offset, length. Raises Unreadable, OSError.
    """
    with path.open("rb") as file:
        plain = read(file)
    found: dict[str, int] = {}
    for state in plain.states:
        name = state.get("relative_path") if isinstance(state, dict) else None
        offset, length = number_at(state, "offset"), number_at(state, "length")
        if isinstance(name, str) and offset is not None and length is not None:
            found[name] = max(found.get(name, 0), offset + length)
    return found


def index_shards(path: Path) -> list[str]:
    """Return the names of the files in the ``weight_map`` of a shard index. Raises Unreadable, OSError."""
    listed = json_object(path, _MOST_BYTES).get("weight_map")
    if not isinstance(listed, dict) or not all(isinstance(name, str) for name in listed.values()):
        raise Unreadable("it lists no files")
    return sorted(set(listed.values()))


_MOST_TRAINER_STATE_BYTES = 64 << 20  # large, because the file contains the log history of the training


def global_step(path: Path) -> int:
    """Return the step in ``trainer_state.json``, a file of transformers. Raises Unreadable, OSError."""
    found: Any = json_object(path, _MOST_TRAINER_STATE_BYTES).get("global_step")
    if not is_count(found):
        raise Unreadable("it has no global_step")
    return int(found)
