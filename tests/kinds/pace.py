"""How fast a program trains, told while it runs."""

from __future__ import annotations

from pathlib import Path


class Pace:
    """Seconds that each step takes; the programs look them up in a file."""

    def __init__(self, file: Path, seconds: float) -> None:
        self._file = file
        self.set(seconds)

    def set(self, seconds: float) -> None:
        """From the next step on."""
        self._file.write_text(str(seconds))

    @property
    def env(self) -> dict[str, str]:
        """For the job."""
        return {"PACE": str(self._file)}
