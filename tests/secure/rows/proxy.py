"""The page of alice's job where masters serve https: only YARN's own proxy has the certificate that they ask for."""

from __future__ import annotations

import http.client
import json
import ssl
from pathlib import Path
from tempfile import NamedTemporaryFile
from urllib.parse import urlsplit

from tests.jobs.waiters import deferred
from tests.secure.callers import self_made
from tests.secure.field import Field
from tests.secure.flooding import HALF, SOURCES, half_said
from tests.secure.row import LENIENT, SHORT_LIVED, row
from tests.secure.victim import Victim
from tony_provider.runtime.hadoop.java_keystore import JavaKeystore
from tony_provider.runtime.protocol.status import JobState

_ATTEMPT = "look and order past the proxy, from its own host, with certificates of bob's own making and of a job of his"


@row("forged-proxy", f"masters serve https (STRICT): {_ATTEMPT}", cluster=SHORT_LIVED)
def forged_proxy(field: Field) -> str:
    victim = field.submit_victim()
    with deferred(victim.job, field.place):  # which brings it newer tokens
        try:
            victim.until_running()
            return _forged(field, victim)
        finally:
            victim.go.touch()  # whoever waits for its end waits in any case


@row("forged-proxy-lenient", "the same where masters may serve https (LENIENT)", cluster=LENIENT)
def forged_proxy_lenient(field: Field) -> str:
    return _forged(field, field.victim())


@row(
    "half-handshakes",
    f"leave {HALF} handshakes of TLS half said at the page's port, from {len(SOURCES)} addresses",
    cluster=LENIENT,
)
def half_handshakes(field: Field) -> str:
    return half_said(field)


def _forged(field: Field, victim: Victim) -> str:
    seen = field.visitor("alice").ask("GET", f"{victim.page}status")
    field.expect(seen.code == 200 and "worker" in seen.text, f"alice herself sees {seen.code} {seen.first}")
    answers = _answers(field, victim.ports()["web"])
    for what, heard in answers.items():
        field.expect(heard.startswith("refused"), f"{what}: {heard[:200]}")
    kinds = sorted({heard.removeprefix("refused: ") for heard in answers.values()})
    return f"{len(answers)} requests as alice, with and without certificates, none answered ({', '.join(kinds)})"


def _answers(field: Field, page: tuple[str, int]) -> dict[str, str]:
    """``page``: where her master listens for the proxy."""
    with field.acting_as("bob") as place:
        job = place.submit({"tasks": {"worker": {"memory": "128MiB", "command": "sleep 600"}}})
        job.until(JobState.RUNNING)
        his = dict(Victim(place, job, field.folder / "none").credentials().secrets)
        store, password = (his[f"yarn.application.am.keystore{end}"] for end in ("", ".password"))
        his_masters = JavaKeystore.read(store, password.decode()).only_key.pem
        certificates = {
            "http": None,
            "no certificate": b"",
            "one of his making": b"".join(self_made("ProxyCA")),
            "his master's": his_masters,
        }
        return {
            f"{method} {path} with {what}": _ask(field, page, pem, method, path)
            for what, pem in certificates.items()
            for method, path in (("GET", "/"), ("GET", "/status"), ("PUT", "/control/stop"))
        }


def _ask(field: Field, page: tuple[str, int], pem: bytes | None, method: str, path: str) -> str:
    """From the proxy's own address, with its cookie for alice. ``pem``: a key and its certificate; None: by http."""
    host, port = page
    source = (str(urlsplit(field.hadoop.rm_webapp[0]).hostname), 0)
    connection = http.client.HTTPConnection(host, port, timeout=20, source_address=source)
    if pem is not None:
        connection = http.client.HTTPSConnection(
            host, port, timeout=20, source_address=source, context=_context(field.folder, pem)
        )
    body = json.dumps({"reason": "by somebody else"}) if method == "PUT" else None
    try:
        connection.request(method, path, body, {"Cookie": "proxy-user=alice", "Content-Type": "application/json"})
        answer = connection.getresponse()
        return f"HTTP {answer.status} {answer.read(500)!r}"
    except (OSError, http.client.HTTPException) as error:
        return f"refused: {getattr(error, 'reason', '') or type(error).__name__}"
    finally:
        connection.close()


def _context(folder: Path, pem: bytes) -> ssl.SSLContext:
    """Of somebody who does not care whom he speaks with."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if pem:
        with NamedTemporaryFile(dir=folder) as file:
            file.write(pem)
            file.flush()
            context.load_cert_chain(file.name)
    return context
