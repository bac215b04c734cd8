"""What a process of bob's tries on the node that alice's containers are on: one attempt a line of ATTEMPTS.

Each is a name, a tabulator, and a word of ACTS with what it is about. Prints what came of each as one JSON object.
"""

import ctypes
import functools
import http.client
import json
import os
import socket
from pathlib import Path

THERE = "/job:local/task:0/device:CPU:0"  # of a TensorFlow server that somebody has connected to


def read(path):
    with Path(path).open("rb") as file:
        return f"read {file.read(4096)!r}"


def names(path):
    return f"listed {[each.name for each in Path(path).iterdir()]}"


def write(path):
    with Path(path).open("ab") as file:
        file.write(b"# by bob\n")
    return "written"


def remove(path):
    Path(path).rename(f"{path}-bobs")
    return "renamed"


def memory(pid):
    with Path(f"/proc/{pid}/mem").open("rb") as file:
        return f"opened {file.name}"


def traced(pid):
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.ptrace(16, int(pid), 0, 0) != 0:  # PTRACE_ATTACH
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return "attached"


def kill(pid):
    os.kill(int(pid), 9)
    return "killed"


def get(what):
    """Of a server on this node: address, port and path."""
    host, port, path = what.split(" ")
    connection = http.client.HTTPConnection(host, int(port), timeout=10)
    connection.request("GET", path)
    answer = connection.getresponse()
    return f"HTTP {answer.status} {answer.read(2000)!r}"


def served(what):
    """By a TensorFlow server: its address, and the path of a file there."""
    address, path = what.split(" ")
    tensorflow = connected(address)
    with tensorflow.device(THERE):
        try:
            found = tensorflow.io.read_file(path).numpy()
        except tensorflow.errors.OpError as error:
            return f"refused: {type(error).__name__}"
    return f"read {len(found)} bytes {found!r}"


def stored(what):
    """The same, and the path of a file that is to be written there."""
    address, path = what.split(" ")
    tensorflow = connected(address)
    with tensorflow.device(THERE):
        try:
            tensorflow.io.write_file(path, "by bob")
        except tensorflow.errors.OpError as error:
            return f"refused: {type(error).__name__}"
    return "written"


@functools.lru_cache(maxsize=1)
def connected(address):
    import tensorflow

    tensorflow.config.experimental_connect_to_host(address, job_name="local")
    return tensorflow


def connect(path):
    """To a Unix socket."""
    with socket.socket(socket.AF_UNIX) as end:
        end.connect(path)
        return "connected"


ACTS = {
    "read": read,
    "names": names,
    "write": write,
    "remove": remove,
    "memory": memory,
    "traced": traced,
    "kill": kill,
    "get": get,
    "connect": connect,
    "served": served,
    "stored": stored,
}


def attempt(words):
    act, _, what = words.partition(" ")
    try:
        return ACTS[act](what)
    except OSError as error:
        return f"refused: {type(error).__name__} {error.strerror or error}"


lines = [line.split("\t") for line in os.environ["ATTEMPTS"].splitlines()]
print(json.dumps({name: attempt(words) for name, words in lines}))
