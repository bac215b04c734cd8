"""Run TensorBoard: in a sidecar's container with the job's own Python, and for ``airflow tony tensorboard``.

This file is copied there and imports only the standard library and tensorboard. It sets TensorBoard's arguments from
variables, because all users of the machine can read a process's arguments, and the path is a secret. An optional
argument names a directory of the starter: when standard input ends, the directory is removed and TensorBoard ends.
"""

import os
import shutil
import sys
import threading
import types
from pathlib import Path

CANNOT_RUN = 126  # as in shells: the command cannot be executed, so a retry would not help

# Next to this file there are only directories, one of them named tensorboard, which would hide the package.
sys.path = [place for place in sys.path if Path(place) != Path(__file__).absolute().parent]

# Importing TensorFlow needs 0.5 GB more and many seconds, and event files seldom need it.
sys.modules["tensorboard.compat.notf"] = types.ModuleType("tensorboard.compat.notf")


def end_with_starter(directory: str) -> None:
    while os.read(0, 1024):  # sys.stdin's lock, held by this thread at exit, would make Python abort
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
    "--load_fast=false",  # otherwise a second server listens, which does not check the secret path
    "--reload_interval=5",
    "--reload_multifile=true",  # a restarted task writes a new file, and the old one may still grow
    "--window_title=" + os.environ["TONY_JOB_NAME"],
]
run_main()
