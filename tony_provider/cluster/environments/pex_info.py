"""What a PEX says of itself: which wheels are in it."""

from __future__ import annotations

import zipfile
from typing import BinaryIO

from tony_provider.runtime.foreign_json import ForeignJsonError, read_json
from tony_provider.runtime.local.unpacking import UNREADABLE
from tony_provider.runtime.most_bytes import RECORD
from tony_provider.runtime.wheel_name import WheelName

_INFO = "PEX-INFO"


class PexError(ValueError):
    """A file is no PEX."""


def wheels_of(pex: BinaryIO) -> list[WheelName]:
    """The wheels in a PEX. Raises PexError; of a file of the store also StorageError."""
    try:
        with zipfile.ZipFile(pex) as opened, opened.open(_INFO) as info:
            data = info.read(RECORD + 1)
    except UNREADABLE as error:
        raise PexError(f"it is no PEX ({error})") from error
    if len(data) > RECORD:
        raise PexError(f"its {_INFO} has more than {RECORD} bytes")
    try:
        named = read_json(data)["distributions"]
        return [wheel for name in named if (wheel := WheelName.parse(str(name))) is not None]
    except (ForeignJsonError, LookupError, TypeError) as error:
        raise PexError(f"its {_INFO} cannot be read ({error!r})") from error
