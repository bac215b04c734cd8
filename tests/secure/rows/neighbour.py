"""A process of another user on the node that alice's containers are on. Needs containers that run as their users."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.faults.sockets import connections
from tests.hadoop.processes import Process
from tests.jobs.processes import below, every_process
from tests.secure.field import Field
from tests.secure.row import row
from tests.secure.victim import Victim
from tests.waiting import until
from tony_provider.runtime.protocol.status import JobState


@row("neighbours-files", "read, list, rewrite and rename alice's container, token file, logs and cached files")
def files(field: Field) -> str:
    victim = field.victim()
    folders = field.place.work_folders(victim.id)
    work = next(each for each in folders if "usercache" in str(each))
    container = victim.container("worker:0")
    [mine] = [each / container for each in folders if (each / container).is_dir() and "usercache" in str(each)]
    private = next(each for each in folders if "nmPrivate" in str(each))
    logs = next(each for each in victim.job.log_folders(victim.id) if each.name == container)
    attempts = {
        "her usercache": f"names {work.parents[1]}",
        "her cached files": f"names {work.parents[1] / 'filecache'}",
        "her application": f"names {work}",
        "her container": f"names {mine}",
        "its script": f"read {mine}/launch_container.sh",
        "its token file": f"read {mine}/container_tokens",
        "its runtime": f"read {mine}/tony-runtime.zip",
        "a file of hers": f"write {mine}/launch_container.sh",
        "her folder": f"remove {mine}",
        "the node's copy of tokens": f"names {private}",
        "her logs": f"names {logs}",
        "her output": f"read {logs}/stdout",
        "YARN's keytab": f"read {field.hadoop.layout.keytab('yarn')}",
        "the key of https": f"read {field.hadoop.layout.keystore}",
    }
    return _none(field, victim, attempts)


@row("neighbours-processes", "read environment, memory, files and folder of alice's processes, trace and kill them")
def processes(field: Field) -> str:
    victim = field.victim()
    attempts: dict[str, str] = {}
    for who, process in (
        ("master", victim.master),
        ("executor", victim.executor("worker:0")),
        ("training", _user_process(victim)),
    ):
        attempts |= {
            f"{who}'s environment": f"read /proc/{process.pid}/environ",
            f"{who}'s memory": f"memory {process.pid}",
            f"{who}'s files": f"names /proc/{process.pid}/fd",
            f"{who}'s folder": f"names /proc/{process.pid}/cwd",
            f"{who} traced": f"traced {process.pid}",
            f"{who} killed": f"kill {process.pid}",
        }
    told = _none(field, victim, attempts)
    words = [each.words for each in victim.job.processes()]
    field.expect(not any(victim.secret in each for each in words), "the job's secret is in a command line")
    return f"{told}; command lines, which all may read, hold no secret"


@row("neighbours-tensorboard", "open the port that alice's TensorBoard listens on, on its node's loopback")
def tensorboard(field: Field) -> str:
    victim = field.victim(python_env=sys.prefix, tensorboard={"memory": "512MiB"})
    alice = field.visitor("alice")

    def drawn() -> bool:
        return alice.ask("GET", f"{victim.page}tensorboard/data/environment").code == 200

    until(drawn, victim.job.describe)
    servers = [
        (each.local, process)
        for seen in victim.job.processes()
        if "show_tensorboard" in seen.words and (process := Process.of(seen.pid))
        for each in connections(process)
        if each.state == "0A"
    ]
    field.expect(bool(servers), "TensorBoard listens nowhere")
    for (host, _), _ in servers:
        field.expect(host == "127.0.0.1", f"TensorBoard listens on {host}")
    paths = ("/", "/data/environment", "/data/runs", "/tensorboard/", "/x/data/runs")
    attempts = {f"{path} of {port}": f"get {host} {port} {path}" for (host, port), _ in servers for path in paths}
    with field.acting_as("bob") as place:
        said = field.neighbour(place, attempts)
    for name, what in said.items():
        field.expect(what.startswith(("refused", "HTTP 404", "HTTP 403")), f"{name}: {what[:200]}")
    return f"{len(said)} paths on its port: {', '.join(sorted({what[:8] for what in said.values()}))}"


def _user_process(victim: Victim) -> Process:
    """A process below the executor's that is neither it nor its guard."""
    everyone = every_process()
    executor = victim.executor("worker:0").pid
    pid = next(each for each in below(executor, everyone) if str(victim.go) in everyone[each].words)
    process = Process.of(pid)
    assert process is not None, "the training has ended"
    return process


def _none(field: Field, victim: Victim, attempts: dict[str, str]) -> str:
    """Have bob's program try them all: every one must be refused by the system, and her job be as it was."""
    with field.acting_as("bob") as place:
        said = field.neighbour(place, attempts)
    missing = {name: words for name, words in attempts.items() if name not in said}
    field.expect(not missing, f"not tried: {missing}")
    for name, what in said.items():
        field.expect(what.startswith("refused: PermissionError"), f"{name}: {what[:200]}")
    for path in {words.split(" ", 1)[1] for words in attempts.values() if " /" in words}:
        if not path.endswith(("container_tokens", "stdout")):  # taken away by us; written by nobody yet
            field.expect(Path(path).exists(), f"{path}, which he tried, is not there")
    field.expect(victim.job.status().state is JobState.RUNNING, "alice's job does not run any more")
    refusals = sum(what.startswith("refused: PermissionError") for what in said.values())
    return f"{refusals} of {len(said)} attempts refused by the system (EACCES, EPERM)"
