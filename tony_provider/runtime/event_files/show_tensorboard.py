"""Runs TensorBoard: in a side-car's container by the job's own Python, and for ``airflow tony tensorboard``.

Copied there; standard library and tensorboard only. TensorBoard's arguments are set in here and not given, since
everybody on the machine can read a process's arguments, and the path is a secret. The one that is given is a directory
of whoever has started it: when standard input ends it is removed, and TensorBoard ends.
"""

import os
import shutil
import sys
import threading
import types
from pathlib import Path

CANNOT_RUN = 126  # as shells say it: trying again would mend nothing

# Beside this file there are only directories, one of which is called tensorboard.
sys.path = [place for place in sys.path if Path(place) != Path(__file__).absolute().parent]

# TensorFlow would cost half a gigabyte more, and many seconds, for what a directory of event files seldom holds.
sys.modules["tensorboard.compat.notf"] = types.ModuleType("tensorboard.compat.notf")


def end_with_starter(directory: str) -> None:
    while os.read(0, 1024):  # not by sys.stdin: what a thread holds of it as Python ends would abort the process
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
    "--load_fast=false",  # else a second server listens, which knows no secret
    "--reload_interval=5",
    "--reload_multifile=true",  # a task that starts again goes on in a new file, and the old one may still be coming
    "--window_title=" + os.environ["TONY_JOB_NAME"],
]
run_main()
