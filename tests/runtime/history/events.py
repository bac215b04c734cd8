"""The event log of an application on this machine, for tests that look at it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tony_provider.runtime.history.events import read_events
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
