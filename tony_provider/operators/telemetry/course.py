"""The course of a job as spans of time, made of its events."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs

MOST_SPANS = 500  # of one application; the oldest checkpoints are left out

Events = Sequence[Mapping[str, Any]]
_CONTAINERS_THERE = ("gang_complete", "first_container")
_GENERATION_OVER = ("stopping", "verdict")
_SUSPENDED = "suspended"  # the event, and the stretch that begins with it
_GANG = "gang"  # what a restart of all tasks is of, in its event


@attrs.frozen
class Stretch:
    """Something that took its time. Where the clock has jumped, it ends before its start."""

    name: str
    start_ms: int  # epoch; so the next
    end_ms: int
    attributes: dict[str, str | int] = attrs.field(factory=dict)


def course(events: Events, started_ms: int, finished_ms: int) -> list[Stretch]:
    """What a job did between its submission and its end, in order; what its events do not tell is left out.

    The stretches are ``waiting`` for containers, ``localisation`` until all executors have registered, each
    ``generation``, each ``restart`` between two of them, the time ``suspended`` and the ``waiting`` after it, the copy
    of each ``checkpoint``, and the ``end``.
    """
    known = [event for event in events if isinstance(event.get("time_ms"), int)]
    main = [*_beginning(known, started_ms, finished_ms), *_generations(known, finished_ms), *_end(known, finished_ms)]
    checkpoints = list(_checkpoints(known))
    left_out = max(0, len(main) + len(checkpoints) - MOST_SPANS)
    return sorted([*main[:MOST_SPANS], *checkpoints[left_out:]], key=lambda each: each.start_ms)


def _first(events: Events, *names: str) -> int | None:
    return next((event["time_ms"] for event in events if event.get("event") in names), None)


def _beginning(events: Events, started_ms: int, finished_ms: int) -> Iterator[Stretch]:
    there, together = _first(events, *_CONTAINERS_THERE), _first(events, "rendezvous")
    yield Stretch("waiting", started_ms, next(at for at in (there, together, finished_ms) if at is not None))
    if there is not None:
        yield Stretch("localisation", there, finished_ms if together is None else together)


def _generations(events: Events, finished_ms: int) -> Iterator[Stretch]:
    """A generation lasts until its gang is stopped, and the restart until the next one begins."""
    number = 0
    now: tuple[str, int] | None = None  # what it does, and since when
    for event in [*events, {"event": _GENERATION_OVER[-1], "time_ms": finished_ms}]:
        following, doing = _following(event), now[0] if now is not None else None
        if following is None or (following == doing != "generation"):
            continue
        if following == "waiting" and doing != _SUSPENDED:
            continue  # of the beginning, or for a later stage
        if now is not None:
            yield Stretch(now[0], now[1], event["time_ms"], {"tony.generation": number})
        if following == "generation":
            told = _data(event).get("generation")
            number = told if isinstance(told, int) else number + 1
        goes_on = following == "generation" or (following and now is not None)
        now = (following, event["time_ms"]) if goes_on else None


def _following(event: Mapping[str, Any]) -> str | None:
    """What the gang does from this event on: empty for nothing more; None where the event is about something else."""
    name = event.get("event")
    if name == "rendezvous":
        return "generation"
    if name == _SUSPENDED:
        return _SUSPENDED
    if name == "requested":
        return "waiting"
    if name == "restarting" and _GANG in _data(event, "restarting"):
        return "restart"
    return "" if name in _GENERATION_OVER else None


def _data(event: Mapping[str, Any], *path: str) -> Mapping[str, Any]:
    found: Any = event
    for key in ("data", *path):
        found = found.get(key) if isinstance(found, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def _checkpoints(events: Events) -> Iterator[Stretch]:
    """From the moment that the program had saved it until it was committed to the store."""
    for event in events:
        if event.get("event") == "checkpoint":
            point, end = _data(event, "checkpoint"), event["time_ms"]
            saved = point.get("saved_ms")
            known = {f"tony.{key}": point.get(key) for key in ("step", "uri")}
            attributes = {key: value for key, value in known.items() if isinstance(value, (int, str))}
            yield Stretch("checkpoint", saved if isinstance(saved, int) and 0 < saved <= end else end, end, attributes)


def _end(events: Events, finished_ms: int) -> Iterator[Stretch]:
    verdict = _first(events, "verdict")
    if verdict is not None:
        yield Stretch("end", verdict, finished_ms)
