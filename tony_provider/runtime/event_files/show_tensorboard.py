"""Run TensorBoard: in a sidecar's container with the job's own Python, and for ``airflow tony tensorboard``.

This file is copied into the container, so it imports only the standard library and tensorboard. It reads TensorBoard's
arguments from environment variables, because the URL path is a secret, and all users of the machine can read a
process's arguments.

The optional argument is a directory of the process that starts TensorBoard. When standard input is closed, the
directory is removed and TensorBoard ends.
"""

import os
import shutil
import sys
import threading
import types
from pathlib import Path

CANNOT_RUN = 126  # exit code of shells for a command that cannot be executed; a retry would fail as well

# This file's directory may contain a directory named tensorboard, which would hide the package of that name.
sys.path = [place for place in sys.path if Path(place) != Path(__file__).absolute().parent]

# With this module, TensorBoard uses its own stub in place of TensorFlow, whose import needs 0.5 GB and many seconds.
sys.modules["tensorboard.compat.notf"] = types.ModuleType("tensorboard.compat.notf")


def end_with_starter(directory: str) -> None:
    while os.read(0, 1024):  # not sys.stdin: if this thread holds its lock at exit, Python aborts
        pass
    shutil.rmtree(directory, ignore_errors=True)
    os._exit(0)


for given in sys.argv[1:]:
    threading.Thread(target=end_with_starter, args=[given], daemon=True).start()

try:
    from tensorboard.main import run_main
except ImportError as error:
    sys.stderr.write(
        f"cannot execute TensorBoard with {sys.executable}: {error}. Install tensorboard there (for a job: in its "
        "python_env), or leave out the job's key tensorboard\n"
    )
    sys.exit(CANNOT_RUN)

sys.argv[1:] = [
    "--logdir=" + os.environ["TONY_TENSORBOARD_DIR"],
    "--host=127.0.0.1",
    "--port=" + os.environ["TONY_PORT"],
    "--path_prefix=" + os.environ["TONY_TENSORBOARD_PATH"],
    "--load_fast=false",  # otherwise TensorBoard starts a second server, which ignores the secret path
    "--reload_interval=5",
    "--reload_multifile=true",  # an older event file may still grow after a restarted task writes a new one
    "--window_title=" + os.environ["TONY_JOB_NAME"],
]
run_main()
