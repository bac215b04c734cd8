"""What an import knows of another system."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs

from tony_provider.importing.draft import Draft
from tony_provider.importing.keys import Keys
from tony_provider.importing.source import Source


@attrs.frozen
class System:
    """A system whose jobs are read."""

    name: str  # as --from has it
    title: str  # as people call it
    page: str  # of the documents, without its ending
    takes: str  # what is read of it, for messages
    keys: Sequence[Keys]  # every table that it reads by, for the documents
    knows: Callable[[Source], bool]  # that a file, or a call, is one of its own
    read: Callable[[Source], Draft]  # raises NotImportable
