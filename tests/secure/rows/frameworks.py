"""Servers of frameworks in alice's job, which ask nobody who they are."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.secure.field import PROGRAMS, Field
from tests.secure.row import row
from tests.secure.victim import Victim

# Neither is about what TensorFlow computes: no look for GPUs, and no thread for each core.
_ENVIRONMENT = {"CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "3"}


@row("tensorflow-port", "ask the TensorFlow server of alice's job for the files with her tokens, and for others")
def tensorflow_port(field: Field) -> str:
    """Its server has neither an address to bind nor anybody's proof: what is ours is what there is to be read."""
    victim = field.submit_victim(
        framework="tensorflow",
        network="isolated",
        memory="1GiB",
        files=[str(PROGRAMS / "tensorflow_server.py")],
        env=_ENVIRONMENT,
        prelude=f"test $TONY_RANK != 0 || ({sys.executable} tensorflow_server.py &)",
    )
    victim.until_running()
    work = _work(field, victim)
    address = victim.until(lambda: (work / "serves").read_text() if (work / "serves").exists() else "", "the server")
    [private] = field.hadoop.layout.data.glob(f"nodemanager-*/nmPrivate/{victim.id}/{work.name}/{work.name}.tokens")
    hidden = {
        "container_tokens": f"served {address} {work}/container_tokens",
        "the node's copy of its tokens": f"served {address} {private}",
        "the master's": f"served {address} {_work(field, victim, master=True)}/container_tokens",
        "alice's keytab": f"served {address} {field.hadoop.layout.keytab('alice')}",
    }
    remaining = {
        "its program": f"served {address} {work}/tensorflow_server.py",
        "its environment": f"served {address} /proc/self/environ",
        "a file there": f"stored {address} {work}/by-bob",
    }
    tasks = {"worker": {"memory": "1GiB", "command": f"{sys.executable} neighbour.py"}}
    with field.acting_as("bob") as place:
        said = field.neighbour(place, hidden | remaining, more_environment=_ENVIRONMENT, tasks=tasks)
    for name in hidden:
        field.expect(said[name].startswith("refused"), f"{name}: {said[name][:200]}")
    # Whoever bounds TensorFlow one day is to say so in docs/platform/harden.md: it tells what is seen here.
    done = [name for name in remaining if not said[name].startswith("refused")]
    field.expect(
        victim.secret in said["its environment"], f"the environment is not shown: {said['its environment'][:99]}"
    )
    refusals = sorted({said[name] for name in hidden})
    return (
        f"tokens, in {len(hidden)} files: {', '.join(refusals)}. TensorFlow's own hole, which only a network that is "
        f"isolated closes: {', '.join(done)}, with her secrets, are read and written by anybody"
    )


def _work(field: Field, victim: Victim, *, master: bool = False) -> Path:
    container = victim.container("" if master else "worker:0")
    [folder] = field.hadoop.layout.data.glob(f"nodemanager-*/usercache/alice/appcache/{victim.id}/{container}")
    return Path(os.path.realpath(folder))
