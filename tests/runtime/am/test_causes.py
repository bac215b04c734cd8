"""The line that names a program's error, from what real programs print."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tony_provider.runtime.am.descriptions import LONGEST_CAUSE, cause, essence, program_output
from tony_provider.runtime.am.session import failures
from tony_provider.runtime.am.session.session_state import ProcessEnd, Task
from tony_provider.runtime.executor.output import TAIL_LINES
from tony_provider.runtime.jobspec.model import RestartScope, Role, TaskSpec

CHAINED = """
try:
    try:
        {}["rate"]
    except KeyError as error:
        raise RuntimeError("cannot read the rate") from error
except RuntimeError:
    raise ValueError("bad configuration:\\n  rate: must be positive\\n  epochs: too many")
"""
LOGGED = """
import logging, sys
try:
    1 / 0
except ZeroDivisionError:
    logging.exception("the evaluation failed")
for step in range(30):
    print(f"step {step} error=0.12", file=sys.stderr)
sys.exit(7)
"""
AT_EXIT = """
class Held:
    def __del__(self):
        import nothing_at_all
held = Held()
raise ValueError("the real reason")
"""

# Of Ray 2.60.
RAY = """\
Traceback (most recent call last):
  File "/job/raytask.py", line 6, in <module>
    ray.get(train.remote())
  File "/site-packages/ray/_private/auto_init_hook.py", line 22, in auto_init_wrapper
    return fn(*args, **kwargs)
           ^^^^^^^^^^^^^^^^^^^
  File "/site-packages/ray/_private/client_mode_hook.py", line 134, in wrapper
    return func(*args, **kwargs)
           ^^^^^^^^^^^^^^^^^^^^^
  File "/site-packages/ray/_private/worker.py", line 3009, in get
    values, debugger_breakpoint = worker.get_objects(
                                  ^^^^^^^^^^^^^^^^^^^
  File "/site-packages/ray/_private/worker.py", line 1053, in get_objects
    raise value.as_instanceof_cause()
ray.exceptions.RayTaskError(ValueError): \x1b[36mray::train()\x1b[39m (pid=27631, ip=192.0.2.2)
  File "/job/raytask.py", line 5, in train
    raise ValueError("boom in ray")
ValueError: boom in ray
"""
# Of torchrun in PyTorch 1.13, without ``record``.
TORCHRUN = """\
Traceback (most recent call last):
  File "/job/tr.py", line 3, in <module>
    raise ValueError("rank one has bad data")
ValueError: rank one has bad data
Sending process 29060 closing signal SIGTERM
failed (exitcode: 1) local_rank: 1 (pid: 29061) of binary: /usr/bin/python3
Traceback (most recent call last):
  File "/job/launch.py", line 8, in <module>
    elastic_launch(c, sys.executable)("-u", prog)
  File "/site-packages/torch/distributed/launcher/api.py", line 132, in __call__
    return launch_agent(self._config, self._entrypoint, list(args))
           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "/site-packages/torch/distributed/launcher/api.py", line 246, in launch_agent
    raise ChildFailedError(
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
tr.py FAILED
------------------------------------------------------------
Failures:
  <NO_OTHER_FAILURES>
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-30_07:46:43
  host      : localhost
  rank      : 1 (local_rank: 1)
  exitcode  : 1 (pid: 29061)
  error_file: <N/A>
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
============================================================
"""
# With ``record``.
RECORDED = """\
Traceback (most recent call last):
  File "/job/tr_rec.py", line 5, in <module>
    main()
  File "/site-packages/torch/distributed/elastic/multiprocessing/errors/__init__.py", line 346, in wrapper
    return f(*args, **kwargs)
           ^^^^^^^^^^^^^^^^^^
  File "/job/tr_rec.py", line 4, in main
    raise ValueError("recorded bad data")
ValueError: recorded bad data
failed (exitcode: 1) local_rank: 0 (pid: 29071) of binary: /usr/bin/python3
Traceback (most recent call last):
  File "/job/launch.py", line 8, in <module>
    elastic_launch(c, sys.executable)("-u", prog)
  File "/site-packages/torch/distributed/launcher/api.py", line 132, in __call__
    return launch_agent(self._config, self._entrypoint, list(args))
           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "/site-packages/torch/distributed/launcher/api.py", line 246, in launch_agent
    raise ChildFailedError(
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
tr_rec.py FAILED
------------------------------------------------------------
Failures:
  <NO_OTHER_FAILURES>
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-30_07:46:45
  host      : localhost
  rank      : 0 (local_rank: 0)
  exitcode  : 1 (pid: 29071)
  error_file: /tmp/torchelastic_cft031tt/x_buu_tpjt/attempt_0/0/error.json
  traceback : Traceback (most recent call last):
    File "/site-packages/torch/distributed/elastic/multiprocessing/errors/__init__.py", line 346, in wrapper
      return f(*args, **kwargs)
             ^^^^^^^^^^^^^^^^^^
    File "/job/tr_rec.py", line 4, in main
      raise ValueError("recorded bad data")
  ValueError: recorded bad data
============================================================
"""
HEAD = """\
Traceback (most recent call last):
  File "/job/train.py", line 5, in <module>
tensorflow.python.framework.errors_impl.InvalidArgumentError: Graph execution error:
"""
# The last lines of TensorFlow 2.21 with Keras 3.15.
TENSORFLOW = """\
  File "/site-packages/keras/src/models/sequential.py", line 239, in call
  File "/site-packages/keras/src/models/functional.py", line 184, in call
  File "/site-packages/keras/src/ops/function.py", line 210, in _run_through_graph
  File "/site-packages/keras/src/models/functional.py", line 707, in call
  File "/site-packages/keras/src/utils/traceback_utils.py", line 117, in error_handler
  File "/site-packages/keras/src/layers/layer.py", line 1002, in __call__
  File "/site-packages/keras/src/utils/traceback_utils.py", line 117, in error_handler
  File "/site-packages/keras/src/ops/operation.py", line 63, in __call__
  File "/site-packages/keras/src/utils/traceback_utils.py", line 156, in error_handler
  File "/site-packages/keras/src/layers/core/embedding.py", line 196, in call
  File "/site-packages/keras/src/ops/numpy.py", line 7924, in take
  File "/site-packages/keras/src/backend/tensorflow/numpy.py", line 3095, in take
indices[0,0] = 9 is not in [0, 4)
    [[{{node sequential_1/embedding_1/GatherV2}}]] [Op:__inference_multi_step_on_iterator_296]
"""


def last_output(*command: str) -> str:
    """Run a command that fails. Return the part of its output that an executor reports."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    return "\n".join(done.stderr.splitlines()[-TAIL_LINES:])


@pytest.mark.parametrize(
    ("program", "found"),
    [
        ("import nothing_at_all", "ModuleNotFoundError: No module named 'nothing_at_all'"),
        (CHAINED, "ValueError: bad configuration: rate: must be positive"),
        ("def f(:\n    pass", "SyntaxError: invalid syntax"),
        ("assert 1 == 2", "AssertionError"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("def f(): f()\nf()", "RecursionError: maximum recursion depth exceeded"),
        (
            "raise ExceptionGroup('two', [ValueError('one'), TypeError('other')])",
            "ExceptionGroup: two (2 sub-exceptions)",
        ),
        ("raise ValueError('x' * 9999)", f"ValueError: {'x' * 9999}"[: LONGEST_CAUSE - 1] + "…"),
        ("raise ValueError('\\x1b[31mred\\x1b[0m')", "ValueError: red"),
        (AT_EXIT, "ValueError: the real reason"),
        (LOGGED, ""),
        (
            "import faulthandler; faulthandler.enable(); faulthandler._sigsegv()",
            "Fatal Python error: Segmentation fault",
        ),
        ("import sys; sys.exit(7)", ""),
    ],
)
def test_of_python(program: str, found: str, tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(program)
    assert cause(last_output(sys.executable, str(path))) == found
    launcher = f"import subprocess, sys; subprocess.run([sys.executable, {str(path)!r}], check=True)"
    if found:  # a program that starts the program, as accelerate does
        assert cause(last_output(sys.executable, "-c", launcher)) == found


@pytest.mark.parametrize(
    ("command", "found"),
    [
        ("no-such-program --fast", "not found"),
        (f"{sys.executable} -m nothing_at_all", "No module named nothing_at_all"),
        (f"{sys.executable} nothing.py", "No such file or directory"),
        ("/etc/passwd", "Permission denied"),
        ("cat /no/such/file", "cat: /no/such/file: No such file or directory"),
        ("echo epoch 5 of 9 >&2; exit 7", ""),
    ],
)
def test_of_a_shell(command: str, found: str) -> None:
    text = cause(last_output("/bin/sh", "-c", command))
    assert text.endswith(found)
    assert bool(text) == bool(found)


@pytest.mark.parametrize(
    ("output", "found"),
    [
        (RAY, "ValueError: boom in ray"),
        (TORCHRUN, "ValueError: rank one has bad data"),
        (RECORDED, "ValueError: recorded bad data"),
        (RECORDED.partition("Traceback")[2], "ValueError: recorded bad data"),
        (TENSORFLOW, "indices[0,0] = 9 is not in [0, 4)"),
        (
            HEAD + TENSORFLOW,
            "indices[0,0] = 9 is not in [0, 4)",
        ),
        ("terminate called\n  what():  CUDA error: an illegal address", "what(): CUDA error: an illegal address"),
        ("", ""),
    ],
)
def test_of_libraries(output: str, found: str) -> None:
    assert cause(output) == found


STARTED = """\
Traceback (most recent call last):
  File "/job/t.py", line 2, in <module>
    subprocess.run(["prepare"], check=True)
subprocess.CalledProcessError: Command '['prepare']' returned non-zero exit status 1.

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/job/t.py", line 4, in <module>
    raise RuntimeError("prepare failed") from None
RuntimeError: prepare failed
"""
HANDLED = """\
Traceback (most recent call last):
  File "/job/t.py", line 2, in <module>
ModuleNotFoundError: No module named 'flash_attn'
WARNING:root:flash_attn is missing; using the slow path
ERROR:root:cannot read /data: No space left on device
"""


def test_a_program_that_starts_others_is_no_launcher() -> None:
    launched = TORCHRUN[TORCHRUN.index("Sending") :]
    for output in (STARTED, STARTED + launched):
        assert cause(output) == "RuntimeError: prepare failed"
        assert program_output(output) == STARTED
    assert program_output(HANDLED + launched) == HANDLED


def test_what_a_launcher_prints_is_not_a_part_of_the_error() -> None:
    """It has times and process IDs, so equal failures would look different."""
    shown = program_output(TORCHRUN)
    assert shown.splitlines()[-1] == "ValueError: rank one has bad data"
    later = TORCHRUN.replace("07:46:43", "07:51:02").replace("2906", "3117")
    assert program_output(later) == shown
    for launched in (TORCHRUN[TORCHRUN.index("Sending") :], RECORDED):  # the first has no exception of the program
        assert "ChildFailedError" in program_output(launched)
        assert essence(program_output(launched)) == essence(program_output(launched.replace("07:46", "07:51")))


@pytest.mark.parametrize("prefix", ["[rank0]: ", "(train pid=7, ip=10.0.0.1) ", "2026-11-30T07:40:{:02}.5Z stderr F "])
def test_of_lines_with_a_prefix(prefix: str, tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(CHAINED)
    lines = last_output(sys.executable, str(path)).splitlines()
    output = "\n".join(prefix.format(number) + line for number, line in enumerate(lines))
    assert cause(output) == "ValueError: bad configuration: rate: must be positive"


def test_a_killed_or_stopped_process_is_not_the_cause() -> None:
    task = Task("worker", 0, Role.WORKER, TaskSpec("python train.py"), decisive=True, scope=RestartScope.GANG)
    for end, found in (
        (ProcessEnd(1, exit_code=1, output_tail=TORCHRUN), "ValueError: rank one has bad data"),
        (ProcessEnd(1, signal=11, output_tail=TORCHRUN), "ValueError: rank one has bad data"),
        (ProcessEnd(1, signal=9, output_tail=TORCHRUN), ""),
        (ProcessEnd(1, exit_code=143, output_tail=TORCHRUN), ""),
        (ProcessEnd(1, exit_code=1, stopped=True, output_tail=TORCHRUN), ""),
    ):
        failure = failures.of_process(task, end, started=True)
        assert failure.cause == found
        assert "bad data" not in failure.message.partition("\n")[0]
        assert failure.full_message.startswith(found or "worker:0 ")
