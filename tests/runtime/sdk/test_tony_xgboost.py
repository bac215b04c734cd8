"""How ranks learn where XGBoost's tracker is; stand-ins have XGBoost's places. `make kinds` does it with XGBoost."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

import tony_provider.runtime.sdk as sdk
from tests.hadoop.ports import free_ports

TRACKER = """
class RabitTracker:
    def __init__(self, n_workers, host_ip, sortby):
        self.arguments = {"n_workers": n_workers, "host_ip": host_ip, "sortby": sortby}

    def start(self):
        self.arguments["started"] = True

    def worker_args(self):
        return self.arguments

    def wait_for(self):
        print("waited")
"""
# As XGBoost's: nobody is past its beginning before all have come.
COLLECTIVE = """
import contextlib, itertools, json, pathlib, time

rounds = itertools.count()

@contextlib.contextmanager
def CommunicatorContext(**arguments):
    print(json.dumps(arguments), flush=True)
    came = pathlib.Path(__file__).parent / f"round-{next(rounds)}"
    came.mkdir(exist_ok=True)
    (came / arguments["dmlc_task_id"]).touch()
    until = time.monotonic() + 50
    while len(list(came.iterdir())) < arguments["n_workers"]:
        assert time.monotonic() < until, f"only {list(came.iterdir())} came"
        time.sleep(0.01)
    yield
"""
PROGRAM = """
import tony_xgboost

for _ in range(2):
    with tony_xgboost.communicator():
        print("working", flush=True)
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    (tmp_path / "xgboost").mkdir()
    (tmp_path / "xgboost" / "__init__.py").touch()
    (tmp_path / "xgboost" / "tracker.py").write_text(TRACKER)
    (tmp_path / "xgboost" / "collective.py").write_text(COLLECTIVE)
    return tmp_path


def begin(package: Path, **env: str) -> subprocess.Popen[str]:
    path = os.pathsep.join([str(Path(sdk.__file__).parent), str(package)])
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": path, **env},
        stdout=subprocess.PIPE,
        text=True,
    )


def test_all_ranks_are_told_of_one_tracker_again_and_again(package: Path) -> None:
    meeting = f"127.0.0.1:{free_ports(1)[0]}"
    ranks = [begin(package, TONY_RENDEZVOUS=meeting, TONY_RANK=str(rank), TONY_WORLD_SIZE="3") for rank in (2, 0, 1)]
    outputs = [process.communicate(timeout=60)[0].splitlines() for process in ranks]
    assert [process.returncode for process in ranks] == [0, 0, 0]
    told = {"n_workers": 3, "host_ip": "127.0.0.1", "sortby": "task", "started": True}
    for rank, lines in zip((2, 0, 1), outputs):  # noqa: B905 - Python 3.9 runs this, too
        arguments = json.dumps({**told, "dmlc_task_id": str(rank)})
        left = ["waited"] if rank == 0 else []
        assert lines == [arguments, "working", *left] * 2


def test_whoever_is_no_rank_takes_nobody_s_place(package: Path) -> None:
    (port,) = free_ports(1)
    env = {"TONY_RENDEZVOUS": f"127.0.0.1:{port}", "TONY_WORLD_SIZE": "2"}
    first = begin(package, TONY_RANK="0", **env)
    until = time.monotonic() + 30
    while time.monotonic() < until:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=5) as stranger:
                stranger.sendall(b"GET / HTTP/1.0\r\n\r\n")
                break
        except ConnectionRefusedError:
            time.sleep(0.05)
    second = begin(package, TONY_RANK="1", **env)
    for process in (first, second):
        process.communicate(timeout=60)
        assert process.returncode == 0


def test_alone_there_is_nobody_to_meet(package: Path) -> None:
    alone = begin(package)
    assert alone.communicate(timeout=60)[0].splitlines() == ["working", "working"]
