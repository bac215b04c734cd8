"""How much of one stream may be on its way in one direction: what keeps every end's memory within bounds."""

from __future__ import annotations

import attrs

from tony_provider.runtime.protocol.limits import TUNNEL_WINDOW
from tony_provider.runtime.tunnel.frames import FrameError


@attrs.define(eq=False)
class Window:
    """The bytes that one end may still send before the other has passed on what it was sent."""

    left: int = TUNNEL_WINDOW

    def spend(self, size: int) -> None:
        """So many are sent. Raises FrameError where that is more than may be."""
        if size > self.left:
            raise FrameError(f"{size} bytes were sent, where {self.left} may be")
        self.left -= size

    def grant(self, size: int) -> None:
        """So many were passed on. Raises FrameError where they were never sent."""
        if self.left + size > TUNNEL_WINDOW:
            raise FrameError(f"{size} bytes are said to be passed on, and were never sent")
        self.left += size
