"""One request of a tunnel to the application master, and its answer, see ``tunnel``."""

from __future__ import annotations

from typing import Optional

import attrs


@attrs.frozen
class TunnelPart:
    """The body of ``PUT control/tunnel``. Sent again, it changes nothing.

    A request either brings bytes, and is answered at once, or asks for those that come the other way, and is answered
    when there are some. Both are of TLS between the user's machine and the master.
    """

    tunnel: str  # its name, chosen at random by whoever begins it
    offset: int = 0  # of ``data`` among all bytes that go to the master
    data: str = ""  # in base64
    received: Optional[int] = None  # so many bytes of the master's have come, and more are asked for
    over: bool = False  # nobody needs the tunnel any more


@attrs.frozen
class TunnelAnswer:
    """The answer to a TunnelPart."""

    received: int  # so many bytes have come to the master in all
    data: str = ""  # in base64: those of the master's that come after ``received`` of the request
    over: str = ""  # why the tunnel has ended; empty: it has not
