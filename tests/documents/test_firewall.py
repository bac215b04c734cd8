"""The firewall of docs/platform/harden.md, loaded by nftables in network namespaces."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.documents.pages import ROOT
from tests.waiting import until

PAGE = ROOT / "docs" / "platform" / "harden.md"
NODE, OTHER_NODE, STRANGER = "tony-node", "tony-other", "tony-stranger"
ADDRESSES = {NODE: "10.79.0.1", OTHER_NODE: "10.79.0.2", STRANGER: "10.79.1.9"}
PORT, FREE_PORT = 20500, 21500
ALICE, BOB = 65531, 65532  # nobody's on this machine
CONNECT = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 10)"
SERVE = """
import selectors, socket, sys
every = selectors.DefaultSelector()
for port in sys.argv[1:]:
    every.register(socket.create_server(("", int(port))), selectors.EVENT_READ)
print("ready", flush=True)
while True:
    for key, _ in every.select():
        key.fileobj.accept()[0].close()
"""

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        os.getuid() != 0 or not all(map(shutil.which, ("nft", "ip"))), reason="needs root, and Debian's nftables"
    ),
]


def rules() -> str:
    """As they stand in the document, but for names that this machine does not know."""
    (found,) = re.findall(r"```text\n(table inet tony .*?)```", PAGE.read_text(), re.DOTALL)
    replaced: str = found.replace("10.1.0.0/24", "10.79.0.0/24").replace('"alice", "yarn", "root"', f"{ALICE}")
    assert replaced.count(str(ALICE)) == 1
    return replaced


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[None]:
    """A node with the rules and servers, another one, and a stranger; all joined by a bridge."""
    names = (NODE, OTHER_NODE, STRANGER)
    process = None
    try:
        for name in names:
            ip("netns", "add", name)
        ip("-n", NODE, "link", "add", "bridge", "type", "bridge")
        for name in names[1:]:
            ip("-n", NODE, "link", "add", name, "type", "veth", "peer", "name", "eth", "netns", name)
            ip("-n", NODE, "link", "set", name, "master", "bridge", "up")
        for name in names:
            interface = "bridge" if name == NODE else "eth"
            ip("-n", name, "addr", "add", f"{ADDRESSES[name]}/16", "dev", interface)
            for each in ("lo", interface):
                ip("-n", name, "link", "set", each, "up")
        for name in names[:2]:
            command = ["ip", "netns", "exec", name, "nft", "-f", "-"]
            subprocess.run(command, input=rules(), text=True, check=True)
        command = ["ip", "netns", "exec", NODE, sys.executable, "-c", SERVE, str(PORT), str(FREE_PORT)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield
    finally:
        if process is not None:
            process.kill()
            process.wait()
        for name in names:
            subprocess.run(["ip", "netns", "del", name], check=False)


def reaches(place: str, user: int, port: int) -> bool:
    words = [sys.executable, "-S", "-c", CONNECT, ADDRESSES[NODE], str(port)]
    as_user = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "/usr/bin/python3", *words[1:]]
    done = subprocess.run(["ip", "netns", "exec", place, *as_user], capture_output=True, check=False, timeout=60)
    assert done.returncode == 0 or b"ConnectionRefusedError" in done.stderr, done.stderr
    return done.returncode == 0


def test_only_the_team_s_user_reaches_its_ports_from_a_node(node: None) -> None:
    until(lambda: reaches(STRANGER, BOB, FREE_PORT), lambda: "the network does not come up")
    seen = {
        (place, user): reaches(place, user, PORT) for place in (NODE, OTHER_NODE, STRANGER) for user in (ALICE, BOB)
    }
    assert seen == {
        (NODE, ALICE): True,
        (NODE, BOB): False,
        (OTHER_NODE, ALICE): True,
        (OTHER_NODE, BOB): False,
        (STRANGER, ALICE): False,
        (STRANGER, BOB): False,
    }
