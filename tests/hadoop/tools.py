"""What this machine must have before a Hadoop cluster can run on it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from tests.hadoop.node_view import lacks_rights

OLDEST_JAVA = 11
# Debian keeps the KDC where an ordinary user's PATH does not look.
KDC_FOLDERS = ("/usr/sbin", "/usr/local/sbin", "/sbin")
KDC_PROGRAMS = ("krb5kdc", "kdb5_util", "kadmin.local")


def java_program() -> str | None:
    """The java to run: that of JAVA_HOME, else the first on PATH."""
    home = os.environ.get("JAVA_HOME")
    if home and (Path(home) / "bin" / "java").is_file():
        return str(Path(home) / "bin" / "java")
    return shutil.which("java")


def java_version() -> str:
    """What `java_program` says of itself, such as 17.0.15; empty when it says none."""
    done = subprocess.run(
        [java_program() or "java", "-version"], capture_output=True, text=True, timeout=30, check=False
    )
    found = re.search(r'version "([^"]+)"', done.stderr)
    return found[1] if found else ""


def java_compiler() -> str | None:
    """The javac beside that java, else the first on PATH."""
    program = java_program()
    beside = Path(program).resolve().with_name("javac") if program else None
    return str(beside) if beside and beside.is_file() else shutil.which("javac")


def keytool_program() -> str | None:
    """The keytool beside that java, else the first on PATH; every Java has it."""
    program = java_program()
    beside = Path(program).resolve().with_name("keytool") if program else None
    return str(beside) if beside and beside.is_file() else shutil.which("keytool")


def kdc_program(name: str) -> str | None:
    return shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", os.defpath), *KDC_FOLDERS]))


def missing_tools(*, secure: bool = False, users: bool = False) -> list[str]:
    """Each missing tool with the Debian package that brings it, in words; empty when nothing is missing.

    With `secure`, what only a Kerberos cluster needs is looked for too; with `users`, the right to run containers as
    other users of the system.
    """
    missing = _missing_java()
    if shutil.which("mvn") is None:
        missing.append("mvn is not on PATH (Debian: maven)")
    if secure:
        missing += [
            f"{name} is missing (Debian: krb5-kdc, krb5-admin-server)" for name in KDC_PROGRAMS if not kdc_program(name)
        ]
        missing += _missing_curl()
    if users and (lacking := lacks_rights()):
        missing.append(lacking)
    return missing


def _missing_java() -> list[str]:
    advice = f"(Debian: openjdk-17-jdk-headless, or JAVA_HOME set to a Java of at least {OLDEST_JAVA})"
    program = java_program()
    if program is None:
        return [f"java is neither in JAVA_HOME nor on PATH {advice}"]
    found = re.match(r"(\d+)(?:\.(\d+))?", java_version())
    if found is None:
        return [f"{program} -version does not name a version {advice}"]
    major = int(found[2] or 0) if found[1] == "1" else int(found[1])
    if major < OLDEST_JAVA:
        return [f"{program} is Java {major}, too old {advice}"]
    return [] if java_compiler() else [f"javac is neither beside {program} nor on PATH {advice}"]


def _missing_curl() -> list[str]:
    """The standard library does no SPNEGO; curl does."""
    program = shutil.which("curl")
    if program is None:
        return ["curl is not on PATH (Debian: curl)"]
    said = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=30, check=False).stdout
    return [] if "GSS-API" in said else [f"{program} was built without GSS-API (Debian's curl has it)"]
