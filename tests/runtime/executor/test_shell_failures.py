"""How user processes end, and what the application master hears of it."""

from __future__ import annotations

import signal

import pytest

from tests.runtime.executor.conftest import Launch
from tests.runtime.executor.containers import SECRET, SECRET_NAME, is_alive, job, until
from tony_provider.runtime.common import contract
from tony_provider.runtime.jobspec.model import TaskSpec


async def test_success(launch: Launch) -> None:
    running = await launch("echo hello; echo world >&2")
    registration = await running.master.first("registration")
    assert registration.host == "127.0.0.1"
    assert registration.node == "127.0.0.1:45454"
    assert registration.pid == running.executor.process.pid
    assert 20000 <= registration.ports["main"] <= 31999
    assert running.master.identities[0].task == "worker:0"
    await running.begin()
    started = await running.master.first("started")
    ended = await running.master.first("exited")
    assert (started.generation, ended.generation) == (1, 1)
    assert (ended.exit_code, ended.signal, ended.error, ended.stopped) == (0, 0, "", False)
    assert await running.end() == 0
    assert (running.container.log_dir / "task.out").read_text() == "hello\n"
    assert (running.container.log_dir / "task.err").read_text() == "world\n"
    assert sorted(running.log.splitlines()[1:]) == ["hello", "world"]


async def test_failure_comes_with_the_last_lines_of_stderr(launch: Launch) -> None:
    running = await launch("for i in $(seq 200); do echo line $i >&2; done; exit 3", attempt=2)
    await running.begin()
    ended = await running.master.first("exited")
    assert (ended.exit_code, ended.signal, ended.error) == (3, 0, "")
    assert ended.output_tail.splitlines() == [f"line {i}" for i in range(101, 201)]
    assert await running.end() == 0
    assert "line 1\n" in running.log


async def test_what_is_said_of_a_failure_holds_no_secret(launch: Launch) -> None:
    running = await launch(f'echo "refused: ${SECRET_NAME}" >&2; exit 3')
    await running.begin()
    assert (await running.master.first("exited")).output_tail == "refused: ***"
    assert await running.end() == 0
    assert running.log.endswith(f"\nrefused: {'*' * len(SECRET)}\n")


async def test_a_process_that_prints_its_error_to_stdout(launch: Launch) -> None:
    running = await launch("echo on stdout; exit 1")
    await running.begin()
    assert (await running.master.first("exited")).output_tail == "on stdout"


@pytest.mark.parametrize(
    "command",
    ["kill -9 $$", "sh -c 'kill -9 $$'; exit $?"],
    ids=["the shell itself", "what the shell ran"],
)
async def test_killed_by_a_signal(launch: Launch, command: str) -> None:
    running = await launch(command)
    await running.begin()
    ended = await running.master.first("exited")
    assert ended.signal == signal.SIGKILL
    assert not ended.stopped
    assert not ended.out_of_memory


async def test_command_not_found(launch: Launch) -> None:
    running = await launch("pythn train.py --epochs 3")
    await running.begin()
    ended = await running.master.first("exited")
    assert ended.exit_code == 127
    assert ended.error.startswith("the command was not found: pythn train.py --epochs 3 (")
    assert "pythn: not found" in ended.error


async def test_command_that_cannot_be_executed(launch: Launch) -> None:
    running = await launch("/etc/passwd")
    await running.begin()
    ended = await running.master.first("exited")
    assert ended.exit_code == 126
    assert ended.error.startswith("the command cannot be executed: /etc/passwd (")


async def test_python_env_that_is_not_on_the_node(launch: Launch) -> None:
    running = await launch(job("python train.py", python_env="/opt/no/such/env"))
    await running.begin()
    ended = await running.master.first("exited")
    assert ended.exit_code != 0
    assert ended.error == (
        "the command could not be started: python_env: there is no directory /opt/no/such/env on this node"
    )
    assert not running.master.received[-1].started.pid


async def test_an_environment_that_linux_does_not_take(launch: Launch) -> None:
    task = TaskSpec(command="true", instances=2, env={"HUGE": "x" * 200_000})
    running = await launch(job("", tasks={"worker": task}))
    await running.begin()
    ended = await running.master.first("exited")
    assert ended.exit_code != 0
    assert "Argument list too long" in ended.error


@pytest.mark.parametrize(
    "leave",
    [
        "sleep 1000 & echo $! > pids",
        "(setsid sleep 1000 & echo $! > pids) &",
        # forks twice and starts a session, as daemons do
        "python3 -c 'import os\nif os.fork(): os._exit(0)\nos.setsid()\nif os.fork(): os._exit(0)\n"
        'open("pids", "w").write(str(os.getpid()))\nimport time; time.sleep(1000)\'',
    ],
    ids=["child", "orphan in a session of its own", "daemon"],
)
async def test_what_a_process_leaves_running_is_stopped(launch: Launch, leave: str) -> None:
    running = await launch(f"{leave}\nwhile [ ! -s pids ]; do sleep 0.05; done; exit 0")
    await running.begin()
    ended = await running.master.first("exited")
    assert (ended.exit_code, ended.error) == (0, "")
    pid = int((running.container.directory / "pids").read_text())
    assert not is_alive(pid)


async def test_stop_gives_grace(launch: Launch) -> None:
    running = await launch('trap "echo saved >&2; exit 0" TERM; touch ready; while true; do sleep 0.05; done')
    await running.begin()
    await until((running.container.directory / "ready").exists, "the user process is ready")
    running.master.stop(1, grace=30)
    ended = await running.master.first("exited")
    assert ended.stopped
    assert "saved" in ended.output_tail


async def test_stop_kills_whatever_ignores_it(launch: Launch) -> None:
    running = await launch(
        'trap "" TERM; sh -c \'trap "" TERM; touch inner; while true; do sleep 0.1; done\' & touch ready;'
        " while true; do sleep 0.1; done"
    )
    await running.begin()
    await until((running.container.directory / "inner").exists, "the user process is ready")
    running.master.stop(1, grace=0.3)
    ended = await running.master.first("exited")
    assert ended.stopped
    assert ended.signal == signal.SIGKILL
    assert not is_alive((await running.master.first("started")).pid)


async def test_a_stop_for_another_generation_means_nothing(launch: Launch) -> None:
    running = await launch("sleep 1; exit 4")
    await running.begin()
    await running.master.first("started")
    running.master.stop(7, grace=0)
    assert (await running.master.first("exited")).exit_code == 4


async def test_shutdown_while_running_keeps_the_log(launch: Launch) -> None:
    running = await launch("echo begun; touch ready; exec sleep 1000")
    await running.begin()
    await until((running.container.directory / "ready").exists, "the user process is ready")
    assert await running.end() == 0
    ended = await running.master.first("exited")
    assert ended.stopped
    assert ended.signal == signal.SIGTERM
    assert "begun" in running.log


async def test_shutdown_before_anything_ran(launch: Launch) -> None:
    running = await launch("true")
    await running.master.first("registration")
    assert await running.end() == 0
    assert list((running.container.application_dir).iterdir()) == []


async def test_a_later_generation_in_the_same_container(launch: Launch) -> None:
    running = await launch('echo generation $TONY_GENERATION; [ "$TONY_GENERATION" = 2 ]')
    await running.begin()
    assert (await running.master.first("exited")).exit_code == 1
    await running.begin(generation=1)  # said again
    await running.begin(generation=2)
    _, second = await running.master.all_of("exited", 2)
    assert (second.generation, second.exit_code) == (2, 0)
    assert await running.end() == 0
    assert "generation 1\n" in running.log
    assert "generation 2\n" in running.log


async def test_a_new_generation_stops_the_one_before(launch: Launch) -> None:
    running = await launch('[ "$TONY_GENERATION" = 2 ] || exec sleep 1000')
    await running.begin()
    await running.master.first("started")
    await running.begin(generation=2)
    first, second = await running.master.all_of("exited", 2)
    assert (first.generation, first.stopped) == (1, True)
    assert (second.generation, second.stopped, second.exit_code) == (2, False, 0)


async def test_what_was_printed_is_told_when_the_container_is_killed(launch: Launch) -> None:
    running = await launch("echo how far it got; echo $STORE_PASSWORD >&2; touch printed; exec sleep 1000")
    await running.begin()
    await running.until_there("printed")
    running.executor.process.terminate()
    words = await running.master.first("last_words")
    assert b"how far it got\n" in words.output
    assert "how far it got" in words.tail
    assert SECRET not in words.tail
    assert await running.executor.wait() == contract.EXIT_TERMINATED
