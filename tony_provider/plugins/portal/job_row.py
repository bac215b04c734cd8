"""A job in a list: the first part of its summary, with the figures that lists show and sort by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeGuard

from tony_provider.cluster.history.summary_parts import JOB_KEY, plain_of
from tony_provider.runtime.protocol.status import FinalStatus
from tony_provider.runtime.spec.problems import shown

Row = dict[str, Any]

RUNNING = "RUNNING"  # its task waits for it
UNSEEN = "UNSEEN"  # its task is to run again, and will say then what became of it
UNWATCHED = "UNWATCHED"  # its task does not wait for its end
LOST = "LOST"  # nobody has seen its end, nor waits for it: its task was ended or cleared, or its worker died
# States of a task instance.
_WAITING = ("running", "deferred")
_TO_COME = ("scheduled", "queued", "restarting", "up_for_retry", "up_for_reschedule")  # for days, where no slot is free

_GB, _HOUR = 2**30, 3600.0
_HELD = {"memory_gb_hours": ("memory_bytes", _GB), "vcore_hours": ("vcores", 1), "gpu_hours": ("gpus", 1)}
_VERDICTS = frozenset(each.value for each in FinalStatus)
_NUMBER: tuple[type, ...] = (int, float)
_MOST = 1 << 63
# What the parts of these fields are.
_MEMBERS: dict[str, tuple[type, ...]] = {
    "times": (*_NUMBER, type(None)),
    "metrics": (*_NUMBER, str),
    "warnings": (str,),
}
# What a field of a damaged summary is taken for, and what its type is otherwise.
_FIELDS: dict[str, tuple[Any, tuple[type, ...]]] = {
    "application_dir": ("", (str,)),
    "try_number": (1, (int,)),
    "watched": (True, (bool,)),
    "run_date": (None, (str,)),
    "tony_conn_id": ("", (str,)),
    "proxy_user": (None, (str,)),
    "user": ("", (str,)),
    "queue": ("", (str,)),
    "name": ("", (str,)),
    "framework": ("", (str,)),
    "verdict": (None, (str,)),
    "reason": ("", (str,)),
    "failure_kind": (None, (str,)),
    "failed_task": (None, (str,)),
    "failed_node": (None, (str,)),
    "submitted_ms": (0, _NUMBER),
    "finished_ms": (None, _NUMBER),
    "times": ({}, (dict,)),
    "step": (None, _NUMBER),
    "total_steps": (None, _NUMBER),
    "steps_per_second": (None, (int, float, str)),
    "restarts": (0, _NUMBER),
    "resumed_step": (None, _NUMBER),
    "checkpoint_step": (None, _NUMBER),
    "metrics": ({}, (dict,)),
    "warnings": ([], (list,)),
    "version": (1, (int,)),
}


def row_of(columns: Mapping[str, Any], key: str, value: str) -> Row:
    """The row of a stored summary. Where it comes from is what ``columns`` of the database say, and nothing else.

    What ``value`` lacks or has in another form than it should is left out, and told in ``problems``. Its ``state`` is
    the verdict, if there is one.
    """
    plain, problems = plain_of(value)
    row: Row = {"application_id": key.removeprefix(JOB_KEY), **columns}
    for name, (default, types) in _FIELDS.items():
        found = plain.get(name)
        if found is not None and (type(found) not in types or (type(found) is not str and not _is_sound(name, found))):
            problems.append(f"{name} is no {types[0].__name__}, or none that can be")
            found = None
        row[name] = default if found is None else found
    if row["verdict"] is not None and row["verdict"] not in _VERDICTS:
        problems.append(f"the verdict {shown(row['verdict'])} is not known to this release")
    row["state"], row["task_state"] = row["verdict"], None
    row["duration_s"] = (row["finished_ms"] - row["submitted_ms"]) / 1000 if row["finished_ms"] else None
    row["waiting_s"] = _waiting(row["times"])
    row.update(_hours(plain.get("use")))
    row["problems"] = problems
    return row


def with_state(row: Row, task_state: str | None, *, is_newest: bool) -> Row:
    """The row of a job without a verdict, with its state by that of its task instance: ``task_state``, None for none.

    ``is_newest``: the task instance has started no other application since.
    """
    if not row["watched"]:
        state = UNWATCHED
    elif is_newest and task_state in (*_WAITING, *_TO_COME):
        state = RUNNING if task_state in _WAITING else UNSEEN
    else:
        state = LOST
    return {**row, "state": state, "task_state": task_state}


def _waiting(times: Mapping[str, Any]) -> float | None:
    """None where nothing says how long it was in the queue, nor that it waited for containers."""
    queue, allocation = times.get("queue"), times.get("allocation")
    if not _is_number(queue) and not allocation:
        return None
    return sum((float(each) for each in (queue, allocation) if _is_number(each)), 0.0)


def _hours(use: Any) -> dict[str, float | None]:
    """What its containers held, whether it was used or not."""
    found: dict[str, float | None] = dict.fromkeys(_HELD)
    for each in use if isinstance(use, list) else []:
        seconds = each.get("container_seconds") if isinstance(each, dict) else None
        if not _is_number(seconds):
            continue
        for name, (field, unit) in _HELD.items():
            held = each.get(field, 0)
            if _is_number(held):
                found[name] = (found[name] or 0.0) + seconds * held / unit / _HOUR
    return found


def _is_sound(name: str, value: Any) -> bool:
    """Whether a value of the right type is one that can be calculated with and shown."""
    if name in _MEMBERS:
        members = value.values() if isinstance(value, dict) else value
        return all(type(each) in _MEMBERS[name] for each in members)
    if name.endswith("_ms"):
        return _is_number(value) and 0 <= value < _MOST  # nor NaN
    return type(value) is not int or _is_bearable(value)


def _is_number(value: Any) -> TypeGuard[float]:
    return type(value) is float or (type(value) is int and _is_bearable(value))


def _is_bearable(value: int) -> bool:
    """False for a whole number that is too large to be calculated with."""
    return -_MOST < value < _MOST
