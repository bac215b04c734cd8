"""Kerberos by GSS-API: tickets of a keytab for HTTP servers, and explanations of Kerberos errors with remedies.

The patterns of errors match messages of MIT's library (its error tables for krb5 and GSS-API), of Java's
``KrbException``, and of Hadoop.
"""

from __future__ import annotations

import base64
import ctypes
import os
import re
import weakref
from pathlib import Path
from typing import Any, Optional

import attrs

_NAME = "write the server's full host name, as its principal has it, instead of an alias or an IP address"


@attrs.frozen
class GssReason:
    """Meaning of a Kerberos error, and its remedy."""

    pattern: re.Pattern[str]
    meaning: str
    remedy: str


def _reason(pattern: str, meaning: str, remedy: str) -> GssReason:
    return GssReason(re.compile(pattern, re.IGNORECASE), meaning, remedy)


_REASONS = (
    _reason(
        r"is not allowed to impersonate",
        "the cluster does not let this user act for others",
        "have hadoop.proxyuser.<that user>.hosts and .groups (or .users) set on NameNodes and ResourceManagers, or "
        "leave proxy_user out",
    ),
    _reason(
        r"tries to renew a token|with non-?matching renewer|Failed to renew token",
        "HDFS lets nobody renew this token but the one it names, and that is not who tries to",
        "set `rm_principal` in the tony connection to the ResourceManager's own principal",
    ),
    _reason(
        r"Clock skew too great",
        "the clocks of this machine and of the server, or the KDC, differ by more than Kerberos allows (5 minutes)",
        "let all keep time by NTP",
    ),
    _reason(
        r"ticket expired|credentials? (has|have) expired|credentials expired|TKT_EXPIRED",
        "the Kerberos ticket has expired",
        "run kinit, or let `airflow kerberos` run",
    ),
    _reason(
        r"No (Kerberos )?credentials (cache )?(available|found|were supplied)|No credentials cache|"
        r"No credential data|Can't find client principal|Credentials cache file .* not found",
        "there is no Kerberos ticket",
        "run kinit, or let `airflow kerberos` run, as the user of this process",
    ),
    _reason(
        r"Client .*not found in Kerberos database|C_PRINCIPAL_UNKNOWN",
        "the KDC does not know who we are",
        "check the principal and its realm",
    ),
    _reason(
        r"Server .*not found in Kerberos database|S_PRINCIPAL_UNKNOWN|Server not found",
        "the KDC knows no server of this name",
        f"{_NAME}; or have the principal added",
    ),
    _reason(
        r"Failed to find any Kerberos|Cannot find key (of appropriate type|for type)|Checksum failed|"
        r"Specified version of key is not available|Wrong principal|No key table entry|Integrity check",
        "the server has no key for the ticket: its keytab is of another principal, or an old one",
        f"{_NAME}; or have its keytab made anew",
    ),
    _reason(r"Request is a replay", "the server takes this request for the copy of an earlier one", "try again"),
    _reason(
        r"Preauthentication failed|Password incorrect",
        "the KDC does not accept the keytab: its key is not the present one",
        "have the keytab made anew",
    ),
    _reason(
        r"Cannot contact any KDC|Cannot find KDC|unreachable KDC",
        "no KDC answers",
        "check the network, and the realm's KDCs in krb5.conf",
    ),
)


def reason(said: str) -> Optional[GssReason]:
    """Return the meaning and remedy of an error message, or None if the message is unknown."""
    return next((each for each in _REASONS if each.pattern.search(said)), None)


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
_MOST_MESSAGES = 8


class GssError(Exception):
    """No ticket is available, or the library is missing; the message is the library's."""


class _Buffer(ctypes.Structure):
    _fields_ = (("length", ctypes.c_size_t), ("value", ctypes.c_void_p))

    @classmethod
    def of(cls, data: bytes) -> _Buffer:
        found = cls(len(data), ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p))
        found.kept = data  # keeps the bytes alive while the library may read them
        return found

    @property
    def data(self) -> bytes:
        return ctypes.string_at(self.value, self.length) if self.value else b""


class _Oid(ctypes.Structure):
    _fields_ = (("length", ctypes.c_uint32), ("elements", ctypes.c_void_p))

    @classmethod
    def of(cls, data: bytes) -> _Oid:
        found = cls(len(data), ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p))
        found.kept = data
        return found


class _OidSet(ctypes.Structure):
    _fields_ = (("count", ctypes.c_size_t), ("elements", ctypes.POINTER(_Oid)))


_SPNEGO = _Oid.of(b"\x2b\x06\x01\x05\x05\x02")
_HOSTBASED_SERVICE = _Oid.of(b"\x2a\x86\x48\x86\xf7\x12\x01\x02\x01\x04")
_PRINCIPAL_NAME = _Oid.of(b"\x2a\x86\x48\x86\xf7\x12\x01\x02\x02\x01")


class KeytabTickets:
    """Tickets of a keytab for HTTP servers. One keytab for each process, because the library reads the environment.

    Thread-safe. Blocks until the KDC has answered.
    """

    def __init__(self, keytab: Path, principal: str) -> None:
        """Load the library. The file ``keytab`` must remain. Raises GssError if the node lacks the library."""
        os.environ["KRB5_CLIENT_KTNAME"] = f"FILE:{keytab}"
        os.environ["KRB5CCNAME"] = "MEMORY:tony"
        try:
            self._gss: Any = ctypes.CDLL(_LIBRARY)
        except OSError as error:
            raise GssError(f"this node has no {_LIBRARY}: {error}") from error
        self._principal = principal

    def negotiate(self, host: str) -> KeytabExchange:
        """Start an exchange with ``HTTP@host``. Raises GssError."""
        return KeytabExchange(self, host)

    def step(self, host: str, context: ctypes.c_void_p, heard: Optional[bytes]) -> tuple[bytes, bool]:
        """Run one step of an exchange; creates or continues its ``context``.

        Returns the token to send, and whether the exchange is complete. Raises GssError, also if the exchange completes
        without a proof of the server's identity.
        """
        own, service, credentials = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
        said = _Buffer()
        minor, granted = ctypes.c_uint32(), ctypes.c_uint32()
        try:
            self._name(self._principal, _PRINCIPAL_NAME, own)
            self._name(f"HTTP@{host}", _HOSTBASED_SERVICE, service)
            mechanisms = _OidSet(1, ctypes.pointer(_SPNEGO))
            self._check(
                self._gss.gss_acquire_cred(
                    ctypes.byref(minor), own, _NO_TIME_LIMIT, ctypes.byref(mechanisms), _INITIATE,
                    ctypes.byref(credentials), None, None,
                ),
                minor,
            )  # fmt: skip
            answered = ctypes.byref(_Buffer.of(heard)) if heard is not None else None
            major = self._gss.gss_init_sec_context(
                ctypes.byref(minor), credentials, ctypes.byref(context), service, ctypes.byref(_SPNEGO), _MUTUAL,
                0, None, answered, None, ctypes.byref(said), ctypes.byref(granted), None,
            )  # fmt: skip
            self._check(major, minor)
            complete = bool(major == _COMPLETE)
            if complete and not granted.value & _MUTUAL:  # the requested flag is not binding, by RFC 2744
                raise GssError(
                    f"the exchange with HTTP@{host} ended without mutual authentication: the ticket was taken, and "
                    "nothing proved who took it; have that server, or what stands before it, answer by Kerberos itself"
                )
            return said.data, complete
        finally:
            self._gss.gss_release_buffer(ctypes.byref(minor), ctypes.byref(said))
            self._gss.gss_release_cred(ctypes.byref(minor), ctypes.byref(credentials))
            for name in (own, service):
                self._gss.gss_release_name(ctypes.byref(minor), ctypes.byref(name))

    def forget(self, context: ctypes.c_void_p) -> None:
        """Free the context of an exchange. Idempotent."""
        minor = ctypes.c_uint32()
        self._gss.gss_delete_sec_context(ctypes.byref(minor), ctypes.byref(context), None)

    def _name(self, text: str, kind: _Oid, found: ctypes.c_void_p) -> None:
        minor = ctypes.c_uint32()
        written = _Buffer.of(text.encode())
        self._check(
            self._gss.gss_import_name(
                ctypes.byref(minor), ctypes.byref(written), ctypes.byref(kind), ctypes.byref(found)
            ),
            minor,
        )

    def _check(self, major: int, minor: ctypes.c_uint32) -> None:
        if major in (_COMPLETE, _CONTINUE):
            return
        said = [*self._messages(major & 0xFFFFFFFF, _GSS_CODE), *self._messages(minor.value, _MECHANISM_CODE)]
        raise GssError(explained("; ".join(dict.fromkeys(said)) or f"GSS-API error {major:#x}"))

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


class KeytabExchange:
    """SPNEGO exchange for one request with tickets of a keytab; same interface as ``SpnegoExchange`` of the store."""

    def __init__(self, tickets: KeytabTickets, host: str) -> None:
        """Create the value of the Authorization header. Raises GssError."""
        self._tickets = tickets
        self._host = host
        self._context = ctypes.c_void_p()
        weakref.finalize(self, tickets.forget, self._context)
        token, _ = tickets.step(host, self._context, None)
        self.authorization = f"Negotiate {base64.b64encode(token).decode()}"

    def check(self, answer: Optional[str]) -> None:
        """Raise GssError unless the server proves to be ``HTTP@host``."""
        scheme, _, token = (answer or "").partition(" ")
        if scheme.lower() != "negotiate" or not token.strip():
            raise self._unproven("its answer comes without a proof")
        try:
            _, complete = self._tickets.step(self._host, self._context, base64.b64decode(token.strip(), validate=True))
        except (GssError, ValueError) as error:
            raise self._unproven(f"its proof is wrong: {error}") from error
        if not complete:
            raise self._unproven("its proof is not complete")

    def _unproven(self, problem: str) -> GssError:
        return GssError(
            f"{self._host} did not prove to be HTTP@{self._host}, as Kerberos asks of servers: {problem}; something "
            "may stand between"
        )
