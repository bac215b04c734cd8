"""The event log of an application on this machine, for tests that look at it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tony_provider.runtime.application_history import EventRange, encode_event, encode_events, read_events
from tony_provider.runtime.storage import LocalStorage


def events_in(directory: Path, missing: list[str] | None = None) -> list[dict[str, Any]]:
    """What an application with this directory has noted so far; what could not be read is added to ``missing``."""
    return list(read_events(LocalStorage(), directory.as_uri(), [] if missing is None else missing))


def names_in(directory: Path) -> list[str]:
    """The names of the events."""
    return [event["event"] for event in events_in(directory)]


def files_in(directory: Path) -> list[Path]:
    """The segments of events, by name."""
    return sorted((directory / "history").glob("events-*"))


def segment_of(*lines: Mapping[str, Any] | bytes) -> bytes:
    """The content of a segment with these events; bytes are lines as they are, such as damaged ones."""
    return encode_events("", [each + b"\n" if isinstance(each, bytes) else encode_event(each) for each in lines])


def leave_events(directory: Path, *lines: Mapping[str, Any] | bytes) -> Path:
    """Write these events as the only segment of an application with this directory."""
    file = directory / "history" / EventRange(1, 1, len(lines)).file
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(segment_of(*lines))
    return file
