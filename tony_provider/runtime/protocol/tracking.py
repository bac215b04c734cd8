"""The web address of a local application's master and the secret to ask it with: two files in the application's folder,
which only its owner can read. All functions block.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Optional

TRACKING_FILE = "tracking-url"  # in LocalAccess.root, as is the next
SECRET_FILE = "tracking-secret"


def write_url(root: Path, url: str) -> None:
    """Write the address in one act. Raises OSError."""
    _write(root / TRACKING_FILE, url)


def read_url(root: Path) -> Optional[str]:
    """The address; None: no master has registered. Raises OSError."""
    return _read(root / TRACKING_FILE)


def make_secret(root: Path) -> str:
    """Make and write a new secret, one for each master; returns it. Raises OSError."""
    secret = secrets.token_hex(32)
    _write(root / SECRET_FILE, secret)
    return secret


def read_secret(root: Path) -> Optional[str]:
    """The secret; None: there is none. Raises OSError."""
    return _read(root / SECRET_FILE)


def _write(path: Path, text: str) -> None:
    partial = path.with_name(f".{path.name}.part")
    partial.unlink(missing_ok=True)
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "w", encoding="ascii") as file:  # noqa: PTH123 - of a descriptor
        file.write(text)
    partial.replace(path)


def _read(path: Path) -> Optional[str]:
    try:
        return path.read_text(encoding="ascii")
    except FileNotFoundError:
        return None
