"""A real Apache Knox in front of a cluster: the gateway through which companies reach YARN and HDFS.

Its users are in its own configuration, in place of a directory server.
"""

from __future__ import annotations

import base64
import datetime
import json
import subprocess
import time
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.x509.oid import NameOID

from tests.hadoop.cluster import HadoopCluster
from tests.hadoop.daemons import ClusterError
from tests.hadoop.ports import free_ports
from tests.hadoop.processes import Process, spawn, stop
from tests.hadoop.resolve import dependency, fetch, project_of
from tests.hadoop.settings import PROXY_USER, REALM
from tests.hadoop.tools import java_program, keytool_program
from tests.waiting import until

VERSION = "2.0.0"  # the newest on Maven Central
MODULES = (
    "server",
    "server-launcher",
    "service-definitions",
    "service-webhdfs",
    "service-rm",
    "provider-security-shiro",
    "provider-security-jwt",
    "provider-security-authz-acls",
    "provider-identity-assertion-common",
    "provider-identity-assertion-pseudo",
    "provider-rewrite",
    "provider-rewrite-step-encrypt-uri",
    "provider-rewrite-func-hostmap-static",
    "provider-rewrite-func-inbound-query-param",
    "provider-rewrite-func-service-registry",
    "provider-rewrite-common",
    "provider-rewrite-step-secure-query",
    "provider-ha",
    "provider-jersey",
    "topology-simple",
    "discovery-ambari",
)
# Of its web shell, which no test opens: these jars are not on Maven Central.
_NO_SHELL = (
    "<exclusions><exclusion><groupId>org.jetbrains.pty4j</groupId><artifactId>*</artifactId></exclusion></exclusions>"
)
_LOG = """\
<Configuration>
  <Appenders><Console name="console"><PatternLayout pattern="%d %p %c{1}: %m%n"/></Console></Appenders>
  <Loggers><Root level="info"><AppenderRef ref="console"/></Root></Loggers>
</Configuration>
"""
# A line for each option: Knox also reads the principal as a property.
_LOGIN = """\
com.sun.security.jgss.initiate {{
  com.sun.security.auth.module.Krb5LoginModule required
  useKeyTab=true
  keyTab="{keytab}"
  principal="{principal}"
  storeKey=true
  isInitiator=true
  doNotPrompt=true;
}};
"""
_STARTED = "Started gateway on port"
_SECONDS = 90.0
_MASTER_SECRET = "knox-master-secret"  # of its key store
PASSWORDS = {"alice": "alice-password", "bob": "bob-password"}
_COOKIE_LOGIN = "https://login.example.com/knoxsso"


@dataclass(frozen=True)
class Knox:
    """A running gateway. Its topologies: `basic`, `bearer`, and `cookie`, which sends others to a login page."""

    root: Path
    port: int
    key: rsa.RSAPrivateKey  # that signs tokens

    def address(self, topology: str) -> str:
        """Before `/webhdfs/v1`, or before `/yarn` or `/resourcemanager` of the ResourceManager."""
        return f"https://localhost:{self.port}/gateway/{topology}"

    @property
    def ca_file(self) -> Path:
        return self.root / "ca.pem"

    def token(self, user: str, seconds: float = 3600) -> str:
        """A JWT for a user that is valid for so long; of the past if that is negative."""
        claims = {"sub": user, "iss": "KNOXSSO", "exp": int(time.time() + seconds)}
        signed = ".".join(map(_encoded, (json.dumps({"alg": "RS256"}).encode(), json.dumps(claims).encode())))
        signature = self.key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256())
        return f"{signed}.{_encoded(signature)}"


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


@contextmanager
def knox(hadoop: HadoopCluster, root: Path) -> Iterator[Knox]:
    """Run Knox for a cluster, in an empty folder. Raises ClusterError, ResolveError."""
    jars = fetch(f"knox-{VERSION}", pom()) / "jars"
    (port,) = free_ports(1)
    gateway = Knox(root, port, rsa.generate_private_key(65537, 2048))
    _write(gateway, hadoop, jars)
    secure = _secure_flags(root, hadoop) if hadoop.settings.secure else []
    _run([*_java(root, jars), "org.apache.knox.gateway.util.KnoxCLI", "create-master", "--master", _MASTER_SECRET])
    log = root / "knox.log"
    process = spawn([*_java(root, jars), *secure, "org.apache.knox.gateway.GatewayServer"], log=log, cwd=root, env={})
    try:
        until(lambda: _has_started(process, log), lambda: log.read_text()[-3000:], _SECONDS)
        yield gateway
    finally:
        stop([process], 5)


def _secure_flags(root: Path, hadoop: HadoopCluster) -> list[str]:
    """As whom Knox logs in at the servers, to act there for its users, and whose certificates it trusts."""
    layout = hadoop.layout
    login = root / "login.conf"
    login.write_text(_LOGIN.format(keytab=layout.keytab(PROXY_USER), principal=f"{PROXY_USER}@{REALM}"))
    return [
        "-Djavax.security.auth.useSubjectCredsOnly=false",
        f"-Djavax.net.ssl.trustStore={layout.truststore}",
        f"-Djavax.net.ssl.trustStorePassword={layout.tls_password.read_text()}",
        "-Djavax.net.ssl.trustStoreType=PKCS12",
    ]


def pom() -> str:
    return project_of(dependency("org.apache.knox", f"gateway-{each}", VERSION, _NO_SHELL) for each in MODULES)


def _has_started(process: Process, log: Path) -> bool:
    if not process.alive():
        raise ClusterError(f"Knox ended; its log ends with\n{log.read_text()[-3000:]}")
    return _STARTED in log.read_text()


def _java(root: Path, jars: Path) -> list[str]:
    return [
        str(java_program()),
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-Xmx400m",
        "--add-opens=java.base/java.lang=ALL-UNNAMED",
        "--add-opens=java.base/java.util=ALL-UNNAMED",
        f"-DGATEWAY_HOME={root}",
        f"-Dlog4j.configurationFile={root}/conf/gateway-log4j2.xml",
        "-classpath",
        f"{root}/classes:{jars}/*",
    ]


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    if done.returncode:
        raise ClusterError(f"{' '.join(command[-4:])} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")


def _write(gateway: Knox, hadoop: HadoopCluster, jars: Path) -> None:
    root = gateway.root
    for folder in ("conf/topologies", "conf/descriptors", "conf/shared-providers", "data/security/keystores", "logs"):
        (root / folder).mkdir(parents=True)
    for folder in ("data/deployments", "data/applications", "classes/META-INF/services"):
        (root / folder).mkdir(parents=True)
    (root / "classes/META-INF/services/org.apache.knox.gateway.services.GatewayServices").write_text(
        "org.apache.knox.gateway.services.DefaultGatewayServices\n"
    )
    with zipfile.ZipFile(jars / f"gateway-service-definitions-{VERSION}.jar") as archive:
        archive.extractall(root / "data", [name for name in archive.namelist() if name.startswith("services/")])
    (root / "conf/gateway-log4j2.xml").write_text(_LOG)
    values = {
        "gateway.host": "localhost",
        "gateway.port": str(gateway.port),
        "gateway.path": "gateway",
        "gateway.hadoop.kerberos.secured": "true" if hadoop.settings.secure else "false",
        "java.security.krb5.conf": str(hadoop.layout.krb5_conf),
        "java.security.auth.login.config": f"{root}/login.conf",
        "sun.security.krb5.debug": "false",
        "gateway.websocket.feature.enabled": "false",
        "gateway.dispatch.whitelist": ".*",
    }
    (root / "conf/gateway-site.xml").write_text(
        "<configuration>"
        + "".join(_property(name, value, "property") for name, value in values.items())
        + "</configuration>"
    )
    _make_certificate(root)
    for name, provider in _logins(gateway).items():
        (root / "conf/topologies" / f"{name}.xml").write_text(_topology(provider, hadoop))


def _make_certificate(root: Path) -> None:
    """Knox's own way to make one needs an older Java."""
    store = ["-keystore", f"{root}/data/security/keystores/gateway.jks", "-storepass", _MASTER_SECRET]
    name = ["-alias", "gateway-identity"]
    made = ["-dname", "CN=localhost", "-ext", "san=dns:localhost,ip:127.0.0.1", "-keyalg", "RSA", "-storetype", "JKS"]
    keytool = str(keytool_program())
    _run([keytool, "-genkeypair", *name, *made, "-keypass", _MASTER_SECRET, *store])
    _run([keytool, "-exportcert", "-rfc", *name, "-file", f"{root}/ca.pem", *store])


def _logins(gateway: Knox) -> Mapping[str, str]:
    """The provider of each topology that recognises users."""
    pem = "".join(_certificate(gateway.key).decode().splitlines()[1:-1])
    users = {f"users.{user}": password for user, password in PASSWORDS.items()}
    return {
        "basic": _provider("authentication", "ShiroProvider", {**users, "urls./**": "authcBasic"}),
        "bearer": _provider(
            "federation", "JWTProvider", {"jwt.verification.key": pem, "knox.token.verification.pem": pem}
        ),
        "cookie": _provider(
            "federation",
            "SSOCookieProvider",
            {"sso.authentication.provider.url": _COOKIE_LOGIN, "sso.token.verification.pem": pem},
        ),
    }


def _certificate(key: rsa.RSAPrivateKey) -> bytes:
    """Knox takes the public key of tokens as a certificate only."""
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "tokens")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    return made.public_bytes(serialization.Encoding.PEM)


def _topology(login: str, hadoop: HadoopCluster) -> str:
    manager, namenode = hadoop.rm_webapp[0], hadoop.webhdfs[0]
    services = {
        "WEBHDFS": f"{namenode}/webhdfs",
        "NAMENODE": hadoop.fs_default,
        "RESOURCEMANAGER": f"{manager}/ws",
        "YARNUI": manager,
    }
    return (
        "<topology><gateway>"
        + login
        + _provider("identity-assertion", "Default", {})
        + _provider("hostmap", "static", {})
        + "</gateway>"
        + "".join(f"<service><role>{role}</role><url>{escape(url)}</url></service>" for role, url in services.items())
        + "</topology>"
    )


def _provider(role: str, name: str, values: Mapping[str, str]) -> str:
    parameters = "".join(_property(key, value, "param") for key, value in values.items())
    return f"<provider><role>{role}</role><name>{name}</name><enabled>true</enabled>{parameters}</provider>"


def _property(name: str, value: str, kind: str) -> str:
    return f"<{kind}><name>{escape(name)}</name><value>{escape(value)}</value></{kind}>"
