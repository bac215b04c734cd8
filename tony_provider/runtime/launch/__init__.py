"""The start of a program of ours in a container: ``launch.sh`` finds a Python, ``main.py`` its libraries.

The runtime archive holds both at its top, beside ``lib/common`` (pure Python) and one ``lib/cp<version>`` with compiled
libraries per Python that it was built for.
"""

from __future__ import annotations

import pkgutil

LAUNCHER = "launch.sh"
MAIN = "main.py"


def program(name: str) -> bytes:
    """The text of ``LAUNCHER`` or ``MAIN``, for whoever builds the archive."""
    data = pkgutil.get_data(__name__, name)
    if data is None:
        raise FileNotFoundError(f"{name} is not part of this installation")
    return data
