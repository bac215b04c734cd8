"""TLS between YARN's web proxy and an application master, with what YARN hands the master for it.

That is so where ``yarn.resourcemanager.application-https.policy`` is LENIENT or STRICT (Hadoop 3.3 and later): the
ResourceManager makes the master a certificate of its own authority, and its proxy proves itself with the authority's
own. https://hadoop.apache.org/docs/stable/hadoop-yarn/hadoop-yarn-site/WebApplicationProxy.html
"""

from __future__ import annotations

import contextlib
import logging
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Optional

from tony_provider.runtime.hadoop.java_keystore import JavaKeystore, KeystoreError, certificate_pem
from tony_provider.runtime.tls_key import load_key

log = logging.getLogger(__name__)

# The names of org.apache.hadoop.yarn.server.security.AMSecretKeys.
_KEYSTORE, _KEYSTORE_PASSWORD = "yarn.application.am.keystore", "yarn.application.am.keystore.password"
_TRUSTSTORE, _TRUSTSTORE_PASSWORD = "yarn.application.am.truststore", "yarn.application.am.truststore.password"
# Of org.apache.hadoop.yarn.api.ApplicationConstants: the same again, as files for masters that read no token file.
_FILES = ("KEYSTORE_FILE_LOCATION", "TRUSTSTORE_FILE_LOCATION")


def proxy_tls(secrets: Mapping[str, bytes]) -> Optional[ssl.SSLContext]:
    """The TLS settings of the master's web server, which lets in nobody but YARN's proxy; None: YARN asks for http.

    With a keystore that cannot be read it is http, too, which LENIENT allows: a page is no reason not to train. Blocks.
    """
    if _KEYSTORE not in secrets:
        return None
    try:
        key = _read(secrets, _KEYSTORE, _KEYSTORE_PASSWORD).only_key
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        load_key(context, key.pem)
        _require_proxy(context, secrets)
    except (KeystoreError, OSError) as error:
        log.error("the page is served over http: the keystore that YARN has made cannot be used: %s", error)  # noqa: TRY400
        return None
    return context


def remove_files(environ: Mapping[str, str]) -> None:
    """Remove the files that hold the same: whoever else runs as this user on the node could read them. Blocks."""
    for name in _FILES:
        if path := environ.get(name):
            with contextlib.suppress(OSError):
                Path(path).unlink()


def _require_proxy(context: ssl.SSLContext, secrets: Mapping[str, bytes]) -> None:
    """The proxy's certificate is that of the authority itself, whose key nobody else has."""
    if _TRUSTSTORE not in secrets:
        return
    trusted = _read(secrets, _TRUSTSTORE, _TRUSTSTORE_PASSWORD).trusted
    if not trusted:
        raise KeystoreError("its truststore is empty")
    context.load_verify_locations(cadata=b"".join(map(certificate_pem, trusted)).decode())
    context.verify_mode = ssl.CERT_REQUIRED


def _read(secrets: Mapping[str, bytes], store: str, password: str) -> JavaKeystore:
    return JavaKeystore.read(secrets[store], secrets.get(password, b"").decode("utf-8", "replace"))
