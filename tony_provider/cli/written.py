"""Files that a command writes: whole or not at all, and over another one only when told to."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from tony_provider.exceptions import TonySpecError


def write_files(texts: Mapping[Path, str], *, force: bool) -> None:
    """Write each file. Raises TonySpecError before the first one, where one is there or its directory is not."""
    for path in texts:
        if path.exists() and not force:
            raise TonySpecError(f"{path} is there already; --force replaces it")
        if not path.absolute().parent.is_dir():
            raise TonySpecError(f"{path.absolute().parent} is no directory, so {path.name} cannot be written there")
    for path, text in texts.items():
        try:
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise TonySpecError(f"{path} cannot be written: {error.strerror or error}") from error


def print_text(text: str) -> None:
    """A file's text as the answer of a command."""
    sys.stdout.write(text)
    sys.stdout.flush()
