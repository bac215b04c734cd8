"""TLS ends without a socket, whose bytes HTTP requests transport between a client and the application master."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Optional

from tony_provider.runtime.common import contract
from tony_provider.runtime.common.network import load_key
from tony_provider.runtime.protocol.task_identity import secret

LONGEST_MESSAGE = 16 << 10  # bytes of one message
_END = b"\n"


class PipeError(Exception):
    """The other end cannot prove its identity, or violates TLS or the message format."""


def master_context(secrets: Mapping[str, bytes]) -> ssl.SSLContext:
    """Return the TLS settings of an application master, with its application's certificate.

    Blocks. Raises OSError, MissingSecretError.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    load_key(context, secret(secrets, contract.SECRET_AM_KEY) + secret(secrets, contract.SECRET_AM_CERTIFICATE))
    return context


def client_context(authority: str) -> ssl.SSLContext:
    """Return the TLS settings of a master's client. ``authority`` is the certificate that issued the master's, in PEM.

    Raises PipeError.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    try:
        context.load_verify_locations(cadata=authority)
    except (ssl.SSLError, ValueError) as error:
        raise PipeError(f"the application's authority is no certificate: {error}") from error
    return context


class TlsEnd:
    """One end of a TLS connection: consumes received bytes, and produces bytes to send."""

    def __init__(self, context: ssl.SSLContext, application_id: Optional[str] = None) -> None:
        """``application_id`` identifies the master at the other end; None: this end is the master."""
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._incoming, self._outgoing, server_side=application_id is None, server_hostname=application_id
        )
        self._open = False

    def take(self, data: bytes) -> None:
        """Consume received bytes. Raises PipeError."""
        self._incoming.write(data)
        self._shake_hands()

    def write(self, data: bytes) -> None:
        """Encrypt data for the other end. Raises PipeError before the handshake is complete."""
        if not self._open:
            raise PipeError("the other end has not proved who it is")
        self._tls.write(data)

    def outgoing(self) -> bytes:
        """Return the bytes to send to the other end. Raises PipeError."""
        self._shake_hands()
        return self._outgoing.read()

    @property
    def is_open(self) -> bool:
        """Whether the handshake is complete, in which the master has proved its identity."""
        return self._open

    def read(self, most: int) -> bytes:
        """Return decrypted data, or an empty string if no data are available. Raises PipeError."""
        if not self._open:
            return b""
        try:
            said = self._tls.read(most)
        except ssl.SSLWantReadError:
            return b""
        except ssl.SSLError as error:
            raise PipeError(str(error)) from error
        if not said:
            raise PipeError("the other end has closed the connection before it had said all")
        return said

    def _shake_hands(self) -> None:
        if self._open:
            return
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return
        except ssl.SSLCertVerificationError as error:
            raise PipeError(f"the other end is not the application's master: {error.verify_message}") from error
        except ssl.SSLError as error:
            raise PipeError(f"the other end does not speak TLS 1.3: {error}") from error
        self._open = True


class TlsPipe(TlsEnd):
    """TLS end for messages without a newline, each of at most LONGEST_MESSAGE bytes."""

    def __init__(self, context: ssl.SSLContext, application_id: Optional[str] = None) -> None:
        super().__init__(context, application_id)
        self._message = b""

    def give(self, message: Optional[bytes] = None) -> bytes:
        """Return the bytes to send; ``message`` requires a complete handshake. Raises PipeError."""
        self._shake_hands()
        if message is not None:
            self.write(message + _END)
        return self.outgoing()

    def message(self) -> Optional[bytes]:
        """Return the received message, or None if it is incomplete. Raises PipeError."""
        while (
            _END not in self._message
            and len(self._message) <= LONGEST_MESSAGE
            and (piece := self.read(LONGEST_MESSAGE))
        ):
            self._message += piece
        if len(self._message) > LONGEST_MESSAGE + len(_END):
            raise PipeError(f"a message of more than {LONGEST_MESSAGE} bytes")
        message, end, _ = self._message.partition(_END)
        return message if end else None
