"""``python`` and ``python3`` of commands whose task brings no environment along."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Optional

_NAMES = ("python3", "python")


def shims(directory: Path, path_of_image: Optional[str]) -> Path:
    """The directory with those of both names that are not on PATH as they are to be. Blocks; raises OSError.

    ``path_of_image``: the PATH of an image, whose own Pythons go before ours; None: it is a plain process.
    """
    directory.mkdir(mode=0o700, exist_ok=True)
    of_image = {name: shutil.which(name, path=path_of_image) for name in _NAMES} if path_of_image is not None else {}
    target = next(filter(None, of_image.values()), sys.executable)
    quoted = "'" + target.replace("'", "'\\''") + "'"
    for name in (each for each in _NAMES if not of_image.get(each)):
        shim = directory / name
        shim.write_text(f'#!/bin/sh\nexec {quoted} "$@"\n')
        shim.chmod(0o700)
    return directory
