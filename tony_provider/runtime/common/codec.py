"""Convert attrs classes to JSON and back, in Airflow and in the containers of a job.

Serves ``JobSpec``, ``ApplicationDescription`` and ``JobStatus``. Memory is in MiB, durations in seconds, enums are
their values. Numbers that JSON cannot write (a loss of NaN) are ``"NaN"``, ``"Infinity"`` or ``"-Infinity"``, as in
protobuf's JSON form. Reading is strict about types, unlike ``parsing.parse``.
"""

from __future__ import annotations

import json
import math
import reprlib
import types
from collections.abc import Iterator, Mapping
from contextlib import suppress
from enum import Enum
from functools import cache
from typing import Any, Optional, TypeVar, Union, get_args, get_origin

import attrs
import cattrs
from cattrs.errors import ForbiddenExtraKeysError
from cattrs.gen import make_dict_structure_fn

from tony_provider.runtime.common.bounds import BoundedJsonError, read_json
from tony_provider.runtime.common.quantities import ResourceAmount

T = TypeVar("T")

NON_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}

# Name of a class attribute, see ``JobStatus``. If it is true, the writer may be newer than the reader, so unknown keys
# are ignored. For other classes an unknown key is an error, because ignoring the key would change the described job.
_MAY_BE_NEWER = "WRITER_MAY_BE_NEWER"

_PIECE = 100  # elements of a long list that are written by one call
_BITS = 64  # size limit of an integer, in bits


class CodecError(ValueError):
    """Error for data that is not the JSON form of a class; ``problems`` lists each invalid place with the reason."""

    def __init__(self, cls: type[Any], problems: tuple[str, ...]) -> None:
        super().__init__(f"not a valid {cls.__name__}: {'; '.join(problems)}")
        self.problems = problems


def dump_json(obj: Any) -> bytes:
    """Return the JSON form of an attrs object, in UTF-8. Raises CodecError for values that JSON cannot hold.

    A long list is written in pieces, because one call for the whole list would block every thread of the process.
    """
    try:
        return "".join(_pieces(to_plain(obj))).encode()
    except (TypeError, ValueError) as error:
        raise CodecError(type(obj), (str(error),)) from error


def _pieces(plain: Any) -> Iterator[str]:
    if not isinstance(plain, dict) or not any(_is_long(value) for value in plain.values()):
        yield _text(plain)
        return
    before = "{"
    for key, value in plain.items():
        yield f"{before}{_text(key)}:"
        before = ","
        if _is_long(value):
            for start in range(0, len(value), _PIECE):
                yield ("," if start else "[") + _text(value[start : start + _PIECE])[1:-1]
            yield "]"
        else:
            yield _text(value)
    yield "}"


def _is_long(value: Any) -> bool:
    return isinstance(value, list) and len(value) > _PIECE


def _text(plain: Any) -> str:
    return json.dumps(plain, allow_nan=False, ensure_ascii=False, separators=(",", ":"))


def to_plain(obj: Any) -> Any:
    """Return the JSON form as dictionaries, lists, text and numbers. ``parsing.parse_job`` reads this form of a job."""
    return converter(forbid_extra_keys=True).unstructure(obj)


def load_json(data: bytes, cls: type[T], *, ignore_unknown: Optional[bool] = None) -> T:
    """Read the bytes that ``dump_json`` wrote.

    ``ignore_unknown``: ignore keys that ``cls`` lacks. Default: only if ``cls`` allows a newer writer. Raises
    CodecError, which names every invalid place.
    """
    try:
        plain = read_json(data)
    except BoundedJsonError as error:
        raise CodecError(cls, (f"not JSON: {error}",)) from error
    return from_plain(plain, cls, ignore_unknown=ignore_unknown)


def from_plain(plain: Any, cls: type[T], *, ignore_unknown: Optional[bool] = None) -> T:
    """Convert a result of ``json.loads`` to an object, with the arguments and errors of ``load_json``."""
    if ignore_unknown is None:
        ignore_unknown = bool(getattr(cls, _MAY_BE_NEWER, False))
    forbid = not ignore_unknown
    try:
        with suppress(Exception):  # the second converter explains the error, but is slow to create
            return converter(forbid_extra_keys=forbid).structure(plain, cls)
        return converter(forbid_extra_keys=forbid, explaining=True).structure(plain, cls)
    except RecursionError as error:
        raise CodecError(cls, ("nested too deeply",)) from error
    except Exception as error:
        # cattrs raises a group of the hooks' errors; transform_error turns it into places and reasons.
        problems = cattrs.transform_error(error, path=cls.__name__, format_exception=_explain)
        raise CodecError(cls, tuple(problems)) from error


def _explain(error: BaseException, _type: Optional[type[Any]]) -> str:
    if isinstance(error, KeyError):
        return "required, but missing"
    if isinstance(error, ForbiddenExtraKeysError):
        return "unknown: " + ", ".join(sorted(error.extra_fields))
    return str(error) or type(error).__name__


def _structure_int(value: Any, _: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"expected an integer, got {reprlib.repr(value)}")
    if value.bit_length() >= _BITS:  # protobuf messages, times and sizes hold no larger integers
        raise TypeError(f"expected a signed {_BITS}-bit integer, got one of {value.bit_length()} bits")
    return value


def _structure_float(value: Any, _: Any) -> float:
    if isinstance(value, str) and value in NON_FINITE:
        return NON_FINITE[value]
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"expected a number, got {reprlib.repr(value)}")
    return float(value)


def _structure_bool(value: Any, _: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"expected true or false, got {reprlib.repr(value)}")
    return value


def _structure_str(value: Any, wanted: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected text, got {reprlib.repr(value)}")
    return value if wanted is str else wanted(value)  # cattrs treats an enum that is a str as str


def _structure_amount(value: Any, _: Any) -> ResourceAmount:
    try:
        return ResourceAmount.from_plain(value)
    except TypeError as error:
        raise TypeError(f"{error}, got {reprlib.repr(value)}") from error


_UNIONS = (Union, getattr(types, "UnionType", Union))  # the latter is the type of float | str, from Python 3.10 on


def _is_number_or_text(wanted: Any) -> bool:
    return get_origin(wanted) in _UNIONS and set(get_args(wanted)) - {type(None)} == {float, str}


def _structure_number_or_text(value: Any, wanted: Any) -> Any:
    """Keep text, such as a number that JSON cannot write, and convert everything else to float."""
    if isinstance(value, str) or (value is None and type(None) in get_args(wanted)):
        return value
    return _structure_float(value, float)


def _check_container(name: str, wanted: Any, value: Any) -> None:
    # cattrs accepts any iterable as a list, so a text would become a list of its letters.
    if value is None:
        return
    if get_origin(wanted) is list and not isinstance(value, list):
        raise TypeError(f"{name}: expected a list, got {reprlib.repr(value)}")
    if get_origin(wanted) is dict and not isinstance(value, Mapping):
        raise TypeError(f"{name}: expected an object, got {reprlib.repr(value)}")


def plain_number(value: float) -> Any:
    """Return a number as JSON can represent it: a text for NaN and infinities."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _unstructure_str(value: str) -> Any:
    return value.value if isinstance(value, Enum) else value  # as in _structure_str


@cache
def converter(*, forbid_extra_keys: bool, explaining: bool = False) -> cattrs.Converter:
    """Return a converter. With ``explaining``, its errors name each invalid place, but creation takes twice as long."""
    converter = cattrs.Converter(forbid_extra_keys=forbid_extra_keys, detailed_validation=explaining)
    converter.register_structure_hook(int, _structure_int)
    converter.register_structure_hook(float, _structure_float)
    converter.register_structure_hook(bool, _structure_bool)
    converter.register_structure_hook(str, _structure_str)
    converter.register_structure_hook_func(_is_number_or_text, _structure_number_or_text)
    converter.register_unstructure_hook(float, plain_number)
    converter.register_unstructure_hook(str, _unstructure_str)
    converter.register_structure_hook(ResourceAmount, _structure_amount)
    converter.register_unstructure_hook(ResourceAmount, lambda amount: amount.plain)

    @converter.register_structure_hook_factory(attrs.has)
    def strict_about_containers(cls: type[Any], converter: cattrs.Converter) -> Any:
        structure = make_dict_structure_fn(
            cls, converter, _cattrs_forbid_extra_keys=forbid_extra_keys, _cattrs_detailed_validation=explaining
        )
        fields = attrs.fields(attrs.resolve_types(cls))

        def hook(value: Any, wanted: Any) -> Any:
            if not isinstance(value, Mapping):
                raise TypeError(f"expected an object, got {reprlib.repr(value)}")
            for field in fields:
                _check_container(field.name, field.type, value.get(field.name))
            return structure(value, wanted)

        return hook

    return converter
