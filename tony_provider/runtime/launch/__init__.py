"""The start of the application master or an executor in a container.

The launch command carries two texts: ``launcher.sh`` finds a Python, and ``prepare.py`` verifies the runtime archive
and unpacks the part for that Python. ``start.py`` is the main module of that part.
"""

from __future__ import annotations

import pkgutil

START = "start.py"


def text(name: str) -> str:
    """Return the text of a file of this package without comment lines. Raises FileNotFoundError."""
    data = pkgutil.get_data(__name__, name)
    if data is None:
        raise FileNotFoundError(f"{name} is not part of this installation")
    lines = data.decode().splitlines()
    return "\n".join(line for line in lines if line.strip() and not line.lstrip().startswith("#")) + "\n"
