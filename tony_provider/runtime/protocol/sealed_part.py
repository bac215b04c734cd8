"""One part of a sealed conversation with an application master, see ``sealed``."""

from __future__ import annotations

import attrs


@attrs.frozen
class SealedPart:
    """What one end of the TLS connection says, in the body of an HTTP request or of its answer."""

    conversation: str  # its name, chosen at random by whoever begins it
    data: str  # TLS records, in base64
