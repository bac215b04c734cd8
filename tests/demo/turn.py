"""One demonstration at a time in one folder: another one waits for its turn, and says so."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.demo.airflow import DemoFailed
from tony_provider.runtime.common.files import locked

WAIT_SECONDS = 1800.0  # longer than a demonstration ever takes, its downloads included


@contextmanager
def turn(home: Path) -> Iterator[None]:
    """Have ``home`` to ourselves. Raises DemoFailed when another process does not let go of it in WAIT_SECONDS."""
    home.parent.mkdir(parents=True, exist_ok=True)
    lock = home.with_name(f"{home.name}.lock")  # beside it: the folder itself is emptied
    with ExitStack() as held:
        try:
            held.enter_context(locked(lock, 0))
        except TimeoutError:
            print(f"Another demonstration is running in {home}: waiting for it to end …", flush=True)
            try:
                held.enter_context(locked(lock, WAIT_SECONDS))
            except TimeoutError as error:
                raise DemoFailed(f"another demonstration did not end: {error}") from error
        yield
