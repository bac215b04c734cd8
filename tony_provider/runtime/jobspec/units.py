"""Parsers for values of a job, such as memory and durations, and grammars (regular expressions) of names.

These names identify users, queues, node labels, tags and environment variables. The provider checks each name from
another system, a trigger form or a connection against its grammar before using the name.
"""

from __future__ import annotations

import math
import re
from datetime import datetime, timedelta
from fractions import Fraction

from tony_provider.runtime.common.quantities import UNITS, ResourceAmount
from tony_provider.runtime.common.text import is_writable
from tony_provider.runtime.jobspec.model import (
    PER_GPU,
    Duration,
    Memory,
    Moment,
    OpenHours,
    Processes,
    PythonEnv,
    Tolerance,
)
from tony_provider.runtime.jobspec.opening_hours import read_hours

ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
QUEUE = re.compile(r"[\w.@%+-]+")
NODE_LABEL = re.compile(r"[0-9A-Za-z][0-9A-Za-z_-]{0,254}")  # YARN's CommonNodeLabelsManager
TAG = re.compile(r"[!-+\--~]+")  # printable ASCII without blanks and commas, because REST separates tags by commas
USER = re.compile(r"\w[\w.@+=$-]{0,255}")  # a short name or a Kerberos principal without a host

USER_RULE = "a user's name has letters, digits and . _ @ + = $ -, and begins with a letter, a digit or _"

MAX_INTEGER = 2**31 - 1  # YARN's resources, priorities and counts are Java ints on Hadoop 2
MAX_DURATION = 3650 * 86400  # seconds; more than ten years is certainly a typing error

_INTEGER = re.compile(r"[+-]?[0-9]+(?:\.0+)?")
_MEMORY = re.compile(r"([0-9]+(?:\.[0-9]+)?) *([A-Za-z]*)")
_MEMORY_UNITS: dict[str, Fraction] = {  # in MiB
    "": Fraction(1),
    "k": Fraction(1, 1024),
    "m": Fraction(1),
    "g": Fraction(1024),
    "t": Fraction(1024**2),
}
_RESOURCE = re.compile(r"([0-9]+) *([A-Za-z]+)")
_MAX_RESOURCE = 2**63 - 1  # YARN converts amounts to plain numbers, without a unit, as Java longs
_DURATION = re.compile(r"(?:([0-9.]+) *d)? *(?:([0-9.]+) *h)? *(?:([0-9.]+) *m)? *(?:([0-9.]+) *s)?")
_DURATION_UNITS = (86400, 3600, 60, 1)
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]*)?|\.[0-9]+")
_LONGEST = 40  # characters of an amount; a limit keeps int() and Fraction() cheap

_MEMORY_ALLOWED = "write 4GiB, 512MiB (or 4g, 512m), or a number of MiB"
_TOLERANCE_ALLOWED = "write a number of tasks, such as 3, or a percentage from 0% to 100%, such as 5%"
_MOMENT_ALLOWED = "write it with its time zone: 2026-11-21T18:00:00+01:00"
_DURATION_ALLOWED = "write 90s, 15m, 2h, 1d, 1h30m, or a number of seconds"


class UnitError(ValueError):
    """A value cannot be parsed as the expected kind of amount. The message describes the allowed values."""


def parse_memory(value: object) -> Memory:
    """Parse an amount of memory, at least 1 MiB. Raises UnitError, like all parsers here.

    Units are binary (``g``, ``Gi``, ``GiB``); ``GB`` is rejected, since it may be decimal or binary.
    """
    mebibytes = _memory_text(value.strip()) if isinstance(value, str) else _number(value, "memory", _MEMORY_ALLOWED)
    if mebibytes <= 0:
        raise UnitError(f"memory must be more than zero; {_MEMORY_ALLOWED}")
    if mebibytes.denominator != 1:
        raise UnitError("memory must be a whole number of MiB")
    if mebibytes > MAX_INTEGER:
        raise UnitError(f"memory must be at most {MAX_INTEGER} MiB")
    return Memory(int(mebibytes))


def parse_duration(value: object) -> Duration:
    """Parse a duration of at least 0: seconds, a ``timedelta``, or parts from large to small (``1d2h30m``)."""
    if isinstance(value, timedelta):
        seconds = Fraction(value // timedelta(microseconds=1), 1_000_000)
    elif isinstance(value, str):
        seconds = _duration_text(value.strip())
    else:
        seconds = _number(value, "a time", _DURATION_ALLOWED)
    if seconds < 0:
        raise UnitError(f"a time must not be negative; {_DURATION_ALLOWED}")
    if seconds > MAX_DURATION:
        raise UnitError("a time must be at most 3650d")
    return Duration(float(seconds))


def parse_moment(value: object) -> Moment:
    """Parse a moment: ISO 8601 with a time zone, a ``datetime``, or seconds since the epoch."""
    if isinstance(value, str):
        text = value.strip()
        if len(text) <= _LONGEST and _NUMBER.fullmatch(text):
            return parse_moment(float(text))
        try:
            # Python 3.9 and 3.10 do not parse the suffix Z.
            value = datetime.fromisoformat(text[:-1] + "+00:00" if text.endswith(("Z", "z")) else text)
        except ValueError:
            raise UnitError(f"not a point in time; {_MOMENT_ALLOWED}") from None
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise UnitError(f"a point in time needs its time zone; {_MOMENT_ALLOWED}")
        return Moment(value.timestamp())
    return Moment(float(_number(value, "a point in time", _MOMENT_ALLOWED)))


def parse_integer(value: object) -> int:
    """Parse an integer of 32 bits, also ``"2"``, ``2.0`` and ``"2.0"``, because divisions in templates give floats."""
    if isinstance(value, str):
        text = value.strip()
        if len(text) > _LONGEST or not _INTEGER.fullmatch(text):
            raise UnitError("must be a whole number")
        number = Fraction(text)
    else:
        number = _number(value, "a number", "write a whole number")
    if number.denominator != 1:
        raise UnitError("must be a whole number")
    if abs(number) > MAX_INTEGER:
        raise UnitError(f"must be a whole number of at most {MAX_INTEGER}")
    return int(number)


def parse_processes(value: object) -> Processes:
    """Parse a number of processes: at least 1, or ``gpus``."""
    if isinstance(value, str) and value.strip().lower() == PER_GPU:
        return PER_GPU
    try:
        number = parse_integer(value)
    except UnitError:
        number = 0
    if number < 1:
        raise UnitError(f"must be a whole number, at least 1, or {PER_GPU} for one process for each GPU")
    return Processes(str(number))


def parse_resource_amount(value: object) -> ResourceAmount:
    """Parse an amount of a resource: an integer, with or without a unit of YARN (``10Gi``)."""
    if isinstance(value, ResourceAmount):
        return value
    text = value.strip() if isinstance(value, str) else ""
    match = _RESOURCE.fullmatch(text) if len(text) <= _LONGEST else None
    if match is None:
        return ResourceAmount(_plain_amount(value))
    number, unit = match.groups()
    if unit not in UNITS:
        meant = [each for each in UNITS if each.lower() == re.sub("b$", "", unit.lower())]
        instead = f"write {' or '.join(number + each for each in meant)}" if meant else f"use one of {_units_of_yarn()}"
        raise UnitError(f"{unit} is not a unit of YARN; {instead}")
    amount = ResourceAmount(parse_integer(number), unit)
    if amount.value * UNITS[unit] > _MAX_RESOURCE:
        raise UnitError("must be less than 2**63 after conversion to the base unit")
    return amount


def _plain_amount(value: object) -> int:
    try:
        return parse_integer(value)
    except UnitError as error:
        raise UnitError(f"{error}, or one with a unit of YARN, such as 10Gi ({_units_of_yarn()})") from None


def _units_of_yarn() -> str:
    return ", ".join(filter(None, UNITS))


def parse_boolean(value: object) -> bool:
    """Parse ``true`` or ``false``, also as text in any case, because Jinja renders a boolean as ``True``."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in ("true", "false"):
        return value.strip().lower() == "true"
    raise UnitError("must be true or false")


def parse_open_hours(value: object) -> OpenHours:
    """Parse hours of the week: ``22:00-06:00``, ``Sat-Sun``, ``Mon-Fri 22:00-06:00``."""
    text = value.strip() if isinstance(value, str) else ""
    try:
        read_hours(text)
    except ValueError as error:
        raise UnitError(str(error)) from None
    return OpenHours(text)


def parse_tolerance(value: object) -> Tolerance:
    """Parse a number of tasks, or a percentage of the tasks: ``3``, ``5%``, ``0.5%``."""
    text = value.strip() if isinstance(value, str) else ""
    if not text.endswith("%"):
        try:
            number = parse_integer(value)
        except UnitError:
            raise UnitError(f"neither a number nor a percentage; {_TOLERANCE_ALLOWED}") from None
        if number < 0:
            raise UnitError(f"must not be negative; {_TOLERANCE_ALLOWED}")
        return Tolerance(str(number))
    share = text[:-1].strip()
    if len(share) > _LONGEST or not _NUMBER.fullmatch(share) or Fraction(share) > 100:
        raise UnitError(f"not a percentage; {_TOLERANCE_ALLOWED}")
    return Tolerance(f"{share}%")


def _number(value: object, what: str, allowed: str) -> Fraction:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise UnitError(f"not {what}; {allowed}")
    if isinstance(value, float) and not math.isfinite(value):
        raise UnitError(f"{what} must be finite; {allowed}")
    return Fraction(value)


def _memory_text(text: str) -> Fraction:
    match = _MEMORY.fullmatch(text) if len(text) <= _LONGEST else None
    if match is None:
        if _is_negative(text):
            raise UnitError(f"memory must be more than zero; {_MEMORY_ALLOWED}")
        raise UnitError(f"not an amount of memory; {_MEMORY_ALLOWED}")
    number, unit = match.groups()
    letter = re.sub("(?<=[kmgt])i(b)?$", "", unit.lower())
    if letter in ("kb", "mb", "gb", "tb"):
        raise UnitError(f"{unit} may mean powers of ten or of two; write {number}{letter[0].upper()}iB")
    if letter not in _MEMORY_UNITS:
        raise UnitError(f"{unit} is not a unit of memory; {_MEMORY_ALLOWED}")
    return Fraction(number) * _MEMORY_UNITS[letter]


def _duration_text(text: str) -> Fraction:
    if 0 < len(text) <= _LONGEST:
        if _NUMBER.fullmatch(text):
            return Fraction(text)
        match = _DURATION.fullmatch(text)
        if match is not None and all(part is None or _NUMBER.fullmatch(part) for part in match.groups()):
            parts = zip(match.groups(), _DURATION_UNITS)
            return sum((Fraction(part) * unit for part, unit in parts if part is not None), Fraction(0))
    if _is_negative(text):
        raise UnitError(f"a time must not be negative; {_DURATION_ALLOWED}")
    raise UnitError(f"not a time; {_DURATION_ALLOWED}")


def _is_negative(text: str) -> bool:
    return text.startswith("-") and text[1:2].isdigit()


def parse_python_env(value: object) -> PythonEnv:
    """Parse the location of a Python environment: a path or URI, or several wheels (a list, or text with commas)."""
    listed = isinstance(value, (list, tuple))
    parts: list[object] = list(value) if isinstance(value, (list, tuple)) else [value]
    texts = [part for part in parts if isinstance(part, str)]
    if len(texts) < len(parts):
        raise UnitError("must be a path or URI, or a list of wheels")
    if listed and any("," in text for text in texts):
        raise UnitError("a wheel's name in a list must not contain a comma")
    text = ",".join(texts)
    if not is_writable(text):
        raise UnitError("must not contain an unpaired surrogate")
    if not text.isprintable() or not all(part.strip() for part in text.split(",")):
        raise UnitError("must be a path or URI, or a list of wheels")
    return PythonEnv(",".join(part.strip() for part in text.split(",")))
