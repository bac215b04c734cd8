"""Accessibility checks of pages by axe-core, in the browser of the tests."""

from __future__ import annotations

import fcntl
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from zipfile import ZipFile

from selenium.webdriver import Chrome

from tests.hadoop.resolve import cache_root

_ARTEFACT = "com.deque.html.axe-core:selenium:4.11.0"  # contains axe.min.js
_SECONDS = 180  # axe has taken more than the default of 30 on a busy machine
_COPY_GOAL = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy"
_CHECK = """
const [scope, done] = arguments;
const reasons = (node) => [...node.any, ...node.all, ...node.none].map((each) => each.message).join("; ");
const line = (rule, node) => `${rule.id}: ${node.target.join(" ")}: ${reasons(node)}`;
const found = (result) => result.violations.flatMap((rule) => rule.nodes.map((node) => line(rule, node)));
axe.run(scope, { resultTypes: ["violations"] }).then((result) => done(found(result)), (error) => done([String(error)]));
"""


def violations(driver: Chrome, scope: str) -> list[str]:
    """Return a line for each violation of axe's rules, WCAG and best practices, in the elements of a CSS selector."""
    driver.execute_script(_script())
    driver.set_script_timeout(_SECONDS)
    return list(driver.execute_async_script(_CHECK, scope))


@cache
def _script() -> str:
    with ZipFile(_jar()) as jar:
        return jar.read("axe.min.js").decode()


def _jar() -> Path:
    """Return the jar in the user's cache. The first call downloads it with Maven."""
    name = "-".join(_ARTEFACT.split(":")[1:]) + ".jar"
    target = cache_root().with_name("axe") / name
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            with tempfile.TemporaryDirectory(dir=target.parent) as draft:
                command = ["mvn", "--batch-mode", "--quiet", _COPY_GOAL]
                command += [f"-Dartifact={_ARTEFACT}", f"-DoutputDirectory={draft}"]
                subprocess.run(command, stdin=subprocess.DEVNULL, timeout=600, check=True)
                (Path(draft) / name).replace(target)
    return target
