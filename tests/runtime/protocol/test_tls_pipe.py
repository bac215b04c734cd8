"""Both ends of a TLS connection that somebody else carries."""

from __future__ import annotations

import ssl
from unittest import mock

import pytest

from tests.runtime.certificates import make_certificates
from tony_provider.runtime.common import contract
from tony_provider.runtime.protocol.http_messages import PipeError, TlsPipe, client_context, master_context

ID = "application_1700000000000_0001"


def opened() -> tuple[TlsPipe, TlsPipe]:
    """The ends of a client and of the master, after their handshake."""
    secrets = make_certificates(ID)
    client = TlsPipe(client_context(secrets[contract.SECRET_CA].decode()), ID)
    master = TlsPipe(master_context(secrets))
    master.take(client.give())
    client.take(master.give())
    master.take(client.give(b"order"))
    assert master.message() == b"order"
    client.take(master.give(b"answer"))
    assert client.message() == b"answer"
    return client, master


def closing(pipe: TlsPipe) -> bytes:
    """What an end says that closes the connection instead of saying something: a TLS ``close_notify``."""
    with mock.patch.object(pipe, "_message", b""):
        try:
            pipe._tls.unwrap()
        except ssl.SSLError:  # it would wait for the other end's
            return pipe.give()
    return pipe.give()


@pytest.mark.parametrize("hostile", ["client", "master"])
def test_an_end_that_closes_in_the_middle_holds_nobody(hostile: str) -> None:
    """Seen: whoever was told so read nothing, for ever, and a master's loop stood still."""
    client, master = opened()
    bad, good = (client, master) if hostile == "client" else (master, client)
    good.take(closing(bad))
    good._message = b""  # the next one is waited for
    with pytest.raises(PipeError, match="closed the connection before"):
        good.message()
