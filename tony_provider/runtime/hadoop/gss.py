"""Kerberos by GSS-API: tickets for servers, and explanations of Kerberos errors with remedies.

An error is recognized by its message. The known messages are those of MIT's library (error tables of krb5 and GSS-API),
of Java's ``KrbException``, and of Hadoop.
"""

from __future__ import annotations

import base64
import ctypes
import os
import re
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Optional, TypeVar

import attrs

_NAME = "write the server's full host name, as in its principal, instead of an alias or an IP address"


@attrs.frozen
class GssReason:
    """Meaning and remedy of a Kerberos error, and the pattern of its messages."""

    pattern: str  # case-insensitive regular expression
    meaning: str
    remedy: str


_REASONS = (
    GssReason(
        r"is not allowed to impersonate",
        "the cluster does not let this user impersonate other users",
        "set hadoop.proxyuser.<that user>.hosts and .groups (or .users) on NameNodes and ResourceManagers, or "
        "remove proxy_user",
    ),
    GssReason(
        r"tries to renew a token|with non-?matching renewer|Failed to renew token",
        "only the renewer that this token names can renew it, and another principal has tried to",
        "set `rm_principal` in the tony connection to the ResourceManager's own principal",
    ),
    GssReason(
        r"Clock skew too great",
        "the clocks of this machine and of the server, or the KDC, differ by more than Kerberos allows (5 minutes)",
        "synchronize all clocks with NTP",
    ),
    GssReason(
        r"ticket expired|credentials? (has|have) expired|credentials expired|TKT_EXPIRED",
        "the Kerberos ticket has expired",
        "run kinit, or let `airflow kerberos` run",
    ),
    GssReason(
        r"No (Kerberos )?credentials (cache )?(available|found|were supplied)|No credentials cache|"
        r"No credential data|Can't find client principal|Credentials cache file .* not found",
        "there is no Kerberos ticket",
        "run kinit, or let `airflow kerberos` run, as the user of this process",
    ),
    GssReason(
        r"Client .*not found in Kerberos database|C_PRINCIPAL_UNKNOWN",
        "the KDC does not know this client's principal",
        "check the principal and its realm",
    ),
    GssReason(
        r"Server .*not found in Kerberos database|S_PRINCIPAL_UNKNOWN|Server not found",
        "the KDC knows no server of this name",
        f"{_NAME}; or add the principal to the KDC",
    ),
    GssReason(
        r"Failed to find any Kerberos|Cannot find key (of appropriate type|for type)|Checksum failed|"
        r"Specified version of key is not available|Wrong principal|No key table entry|Integrity check",
        "the server has no key for the ticket: its keytab belongs to another principal, or is outdated",
        f"{_NAME}; or replace its keytab",
    ),
    GssReason(r"Request is a replay", "the server regards this request as a replay of an earlier request", "retry"),
    GssReason(
        r"Preauthentication failed|Password incorrect",
        "the KDC does not accept the keytab: its key is outdated",
        "replace the keytab",
    ),
    GssReason(
        r"Cannot contact any KDC|Cannot find KDC|unreachable KDC",
        "no KDC answers",
        "check the network, and the realm's KDCs in krb5.conf",
    ),
)


def reason(said: str) -> Optional[GssReason]:
    """Return the meaning and remedy of an error message, or None if the message is unknown."""
    return next((each for each in _REASONS if re.search(each.pattern, said, re.IGNORECASE)), None)


def explained(said: str) -> str:
    """Add the meaning and the remedy to an error message, if they are known."""
    found = reason(said)
    return said if found is None else f"{found.meaning} ({said}); {found.remedy}"


_LIBRARY = "libgssapi_krb5.so.2"
_COMPLETE, _CONTINUE = 0, 1
_GSS_CODE, _MECHANISM_CODE = 1, 2  # status types of gss_display_status
_INITIATE = 1
_NO_TIME_LIMIT = 0xFFFFFFFF
_MUTUAL = 2
_WANTED = _MUTUAL | 16 | 32  # also confidentiality and integrity of messages
_MOST_MESSAGES = 8


class GssError(Exception):
    """The GSS-API library is missing, or reports an error."""


@cache
def _load_library() -> Any:
    try:
        return ctypes.CDLL(_LIBRARY)
    except OSError as error:
        raise GssError(f"{_LIBRARY} of MIT Kerberos is not installed: {error}") from error


_B = TypeVar("_B", bound="_Bytes")


class _Bytes(ctypes.Structure):
    """A length and a pointer."""

    @classmethod
    def of(cls: type[_B], data: bytes) -> _B:
        found = cls(len(data), ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p))
        found.kept = data  # keeps the bytes alive while the library may read them
        return found


class _Buffer(_Bytes):
    _fields_ = (("length", ctypes.c_size_t), ("value", ctypes.c_void_p))

    @property
    def data(self) -> bytes:
        return ctypes.string_at(self.value, self.length) if self.value else b""


class _Oid(_Bytes):
    _fields_ = (("length", ctypes.c_uint32), ("elements", ctypes.c_void_p))


class _OidSet(ctypes.Structure):
    _fields_ = (("count", ctypes.c_size_t), ("elements", ctypes.POINTER(_Oid)))


_KERBEROS = _Oid.of(b"\x2a\x86\x48\x86\xf7\x12\x01\x02\x02")
_HOSTBASED_SERVICE = _Oid.of(b"\x2a\x86\x48\x86\xf7\x12\x01\x02\x01\x04")
_PRINCIPAL_NAME = _Oid.of(b"\x2a\x86\x48\x86\xf7\x12\x01\x02\x02\x01")


class Tickets:
    """Kerberos tickets for servers, from this process's credential cache or from a keytab.

    Thread-safe. Methods may block until the KDC has answered.
    """

    def __init__(self, error: Callable[[str, str], Exception], principal: Optional[str] = None) -> None:
        """Load the GSS-API library. Raises GssError if it is not installed.

        ``error`` returns the exception to raise, given the host and the problem. ``principal`` selects a principal if
        there are several.
        """
        self.error = error
        self._principal = principal
        self._gss = _load_library()

    @classmethod
    def of_keytab(cls, keytab: Path, principal: str, error: Callable[[str, str], Exception]) -> Tickets:
        """Return tickets from a keytab file, which must exist as long as the tickets are used.

        The library reads the keytab's path from the environment, so a process can use only one keytab.
        """
        os.environ["KRB5_CLIENT_KTNAME"] = f"FILE:{keytab}"
        os.environ["KRB5CCNAME"] = f"MEMORY:{keytab}"  # one cache per keytab, because each may have its own KDC
        return cls(error, principal)

    def negotiate(self, host: str) -> TicketExchange:
        """Start an exchange with ``HTTP@host``. If there is no usable ticket, raise the exception from ``error``."""
        return TicketExchange(self, host)

    def owner(self) -> tuple[str, Optional[int]]:
        """Return the principal, and the remaining seconds of its ticket (None if unlimited).

        Raises GssError if there is no ticket.
        """
        name, text = ctypes.c_void_p(), _Buffer()
        seconds, minor = ctypes.c_uint32(), ctypes.c_uint32()
        # gss_inquire_cred would fetch a missing ticket, too, but it loses Kerberos's error, such as a clock skew.
        with self._credentials(ctypes.byref(seconds)) as credentials:
            try:
                self._call("gss_inquire_cred", credentials, ctypes.byref(name), None, None, None)
                self._call("gss_display_name", name, ctypes.byref(text), None)
                return text.data.decode(), None if seconds.value == _NO_TIME_LIMIT else seconds.value
            finally:
                self._gss.gss_release_buffer(ctypes.byref(minor), ctypes.byref(text))
                self._gss.gss_release_name(ctypes.byref(minor), ctypes.byref(name))

    def step(self, server: str, context: ctypes.c_void_p, heard: Optional[bytes]) -> tuple[bytes, bool]:
        """Run one step of an exchange, which creates or updates ``context``.

        ``server`` is the service and the host, such as ``HTTP@localhost``. ``heard`` is the server's token, or None in
        the first step. Returns the token to send, and whether the exchange is complete. Raises GssError, also if the
        exchange completes without a proof of the server's identity.
        """
        said, granted, minor = _Buffer(), ctypes.c_uint32(), ctypes.c_uint32()
        answered = ctypes.byref(_Buffer.of(heard)) if heard is not None else None
        with self._credentials() as credentials, self._name(server, _HOSTBASED_SERVICE) as service:
            try:
                major = self._call(
                    "gss_init_sec_context", credentials, ctypes.byref(context), service, ctypes.byref(_KERBEROS),
                    _WANTED, 0, None, answered, None, ctypes.byref(said), ctypes.byref(granted), None,
                )  # fmt: skip
                complete = major == _COMPLETE
                if complete and not granted.value & _MUTUAL:  # RFC 2744: the library may ignore the requested flag
                    raise GssError(
                        f"the exchange with {server} ended without mutual authentication: the server accepted "
                        "the ticket, but proved no identity; let that server, or the proxy before it, use Kerberos "
                        "itself"
                    )
                return said.data, complete
            finally:
                self._gss.gss_release_buffer(ctypes.byref(minor), ctypes.byref(said))

    def wrap(self, context: ctypes.c_void_p, message: bytes, *, encrypt: bool) -> bytes:
        """Return a message for the server of a complete exchange, signed or encrypted. Raises GssError."""
        written = _Buffer.of(message)
        return self._output("gss_wrap", lambda out: (context, int(encrypt), 0, ctypes.byref(written), None, out))

    def unwrap(self, context: ctypes.c_void_p, wrapped: bytes) -> bytes:
        """Return the content of a message from the server of a complete exchange. Raises GssError."""
        written = _Buffer.of(wrapped)
        return self._output("gss_unwrap", lambda out: (context, ctypes.byref(written), out, None, None))

    def _output(self, function: str, arguments: Callable[[Any], tuple[Any, ...]]) -> bytes:
        """Call a function that fills the buffer which ``arguments`` gets, and return the buffer's content."""
        said, minor = _Buffer(), ctypes.c_uint32()
        try:
            self._call(function, *arguments(ctypes.byref(said)))
            return said.data
        finally:
            self._gss.gss_release_buffer(ctypes.byref(minor), ctypes.byref(said))

    def forget(self, context: ctypes.c_void_p) -> None:
        """Free the context of an exchange. Idempotent."""
        minor = ctypes.c_uint32()
        self._gss.gss_delete_sec_context(ctypes.byref(minor), ctypes.byref(context), None)

    @contextmanager
    def _credentials(self, seconds: Any = None) -> Iterator[ctypes.c_void_p]:
        """Yield this process's credentials.

        ``seconds`` points to a number for the ticket's remaining lifetime. If it is given, a missing ticket is fetched
        at once.
        """
        credentials, minor = ctypes.c_void_p(), ctypes.c_uint32()
        mechanisms = _OidSet(1, ctypes.pointer(_KERBEROS))
        with self._name(self._principal, _PRINCIPAL_NAME) as own:
            self._call(
                "gss_acquire_cred", own, _NO_TIME_LIMIT, ctypes.byref(mechanisms), _INITIATE,
                ctypes.byref(credentials), None, seconds,
            )  # fmt: skip
        try:
            yield credentials
        finally:
            self._gss.gss_release_cred(ctypes.byref(minor), ctypes.byref(credentials))

    @contextmanager
    def _name(self, text: Optional[str], kind: _Oid) -> Iterator[ctypes.c_void_p]:
        name, minor = ctypes.c_void_p(), ctypes.c_uint32()
        if text is not None:
            written = _Buffer.of(text.encode())
            self._call("gss_import_name", ctypes.byref(written), ctypes.byref(kind), ctypes.byref(name))
        try:
            yield name
        finally:
            self._gss.gss_release_name(ctypes.byref(minor), ctypes.byref(name))

    def _call(self, function: str, *arguments: Any) -> int:
        """Call a function of the library, and return its major status. Raises GssError."""
        minor = ctypes.c_uint32()
        major = int(getattr(self._gss, function)(ctypes.byref(minor), *arguments))
        if major in (_COMPLETE, _CONTINUE):
            return major
        # The messages of the mechanism (Kerberos) are more specific than those of GSS-API, unless they are "Success".
        found = [text for text in self._messages(minor.value, _MECHANISM_CODE) if text not in ("", "Success")]
        found = found or self._messages(major & 0xFFFFFFFF, _GSS_CODE)
        raise GssError(explained("; ".join(found) or f"GSS-API error {major:#x}"))

    def _messages(self, code: int, kind: int) -> list[str]:
        found: list[str] = []
        more, minor = ctypes.c_uint32(), ctypes.c_uint32()
        while len(found) < _MOST_MESSAGES:
            said = _Buffer()
            done: Optional[int] = self._gss.gss_display_status(
                ctypes.byref(minor), ctypes.c_uint32(code), kind, None, ctypes.byref(more), ctypes.byref(said)
            )
            if done != _COMPLETE:
                break
            found.append(said.data.decode("utf-8", "replace"))
            self._gss.gss_release_buffer(ctypes.byref(minor), ctypes.byref(said))
            if not more.value:
                break
        return found


class TicketExchange:
    """Authentication of one HTTP request by a ticket. Implements ``HttpLogin`` of the store."""

    def __init__(self, tickets: Tickets, host: str) -> None:
        """Create the value of the Authorization header. Raises the exception from ``tickets.error``."""
        self._tickets = tickets
        self._host = host
        self._context = ctypes.c_void_p()
        weakref.finalize(self, tickets.forget, self._context)
        try:
            token, _ = tickets.step(f"HTTP@{host}", self._context, None)
        except GssError as error:
            raise tickets.error(host, f"no Kerberos ticket for HTTP@{host}: {error}") from error
        self.headers = {"Authorization": f"Negotiate {base64.b64encode(token).decode()}"}

    def check(self, answer: Optional[str]) -> None:
        """Raise the exception from ``tickets.error`` unless the answer proves that the server is ``HTTP@host``."""
        scheme, _, token = (answer or "").partition(" ")
        if scheme.lower() != "negotiate" or not token.strip():
            raise self._unproven("its answer contains no proof")
        try:
            heard = base64.b64decode(token.strip(), validate=True)
            _, complete = self._tickets.step(f"HTTP@{self._host}", self._context, heard)
        except (GssError, ValueError) as error:
            raise self._unproven(f"its proof is wrong: {error}") from error
        if not complete:
            raise self._unproven("its proof is not complete")

    def _unproven(self, problem: str) -> Exception:
        return self._tickets.error(
            self._host,
            f"{self._host} did not prove to be HTTP@{self._host}, as Kerberos requires: {problem}. Its answer is "
            "ignored; a proxy may be in between, or the server does not use Kerberos (then set `kerberos` to "
            "false in the tony connection)",
        )
