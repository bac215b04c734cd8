"""Prepare each Python process of a tony job before the user's code runs: stack dumps, exit limit, JAX cluster.

On SIGUSR2, the process writes the stacks of all threads to stderr. So a job without progress shows where it hangs.
Programs that handle this signal keep their own handler.

After an uncaught exception, exit handlers get only EXIT_SECONDS. Otherwise, JAX's exit handler could wait for other
ranks, while these ranks wait for this process. In jobs of the framework jax, JAX gets the addresses and ranks of the
job. In `airflow tony replay --debug`, a debugger opens at the exception.

Finally, this module runs another sitecustomize that it hides, if there is one. It needs only Python 3.
"""

# Importing pathlib takes time, and this module runs in every process:
# ruff: noqa: PTH100, PTH120
from __future__ import annotations

import os
import sys
from types import TracebackType

EXIT_SECONDS = 10.0  # time limit for exit handlers (atexit) after an uncaught exception


def _show_stacks_on_signal() -> None:
    try:
        import faulthandler
        import signal

        faulthandler.register(signal.SIGUSR2, file=2, all_threads=True)
    except (ImportError, AttributeError, OSError, RuntimeError, ValueError):
        return  # the program runs without stack dumps


def _limit_exit_after_exceptions() -> None:
    show = sys.excepthook

    def show_and_limit(kind: type[BaseException], value: BaseException, traceback: TracebackType | None) -> None:
        show(kind, value, traceback)
        if os.environ.get("TONY_POST_MORTEM"):
            import pdb

            pdb.post_mortem(traceback)
        sys.excepthook = show  # an interactive Python may raise further exceptions
        try:
            _limit_exit()
        except Exception as error:  # noqa: BLE001 - must not replace the user's exception
            sys.stderr.write(f"tony: cannot limit the time of exit handlers: {error!r}\n")

    sys.excepthook = show_and_limit


def _limit_exit() -> None:
    """End this process with exit code 1 if its exit handlers run longer than EXIT_SECONDS after its threads ended."""
    import atexit
    import threading
    import time

    began = threading.Event()

    def end() -> None:
        began.wait()
        time.sleep(EXIT_SECONDS)
        line = f"tony: ended {EXIT_SECONDS:g} s after the exception above, because exit handlers were still running\n"
        os.write(2, line.encode())
        os._exit(1)

    threading.Thread(target=end, name="tony-exit", daemon=True).start()  # Python starts no threads during exit
    atexit.register(began.set)  # handlers run in reverse order, so this one runs first


def _prepare_jax() -> None:
    if not os.environ.get("TONY_JAX"):
        return
    try:
        import tony_jax  # type: ignore[import-not-found,unused-ignore]  # in the same directory as this file

        tony_jax.watch_for_jax()
    except Exception as error:  # noqa: BLE001 - must not end the program
        sys.stderr.write(
            f"tony_jax: cannot set the arguments of jax.distributed.initialize(); pass them yourself: {error!r}\n"
        )


def _run_the_next() -> None:
    import importlib.machinery
    import importlib.util

    here = os.path.dirname(os.path.abspath(__file__))
    path = [entry for entry in sys.path if os.path.abspath(entry) != here]
    spec = importlib.machinery.PathFinder.find_spec(__name__, path)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules[__name__] = module
    spec.loader.exec_module(module)


_show_stacks_on_signal()
_limit_exit_after_exceptions()
_prepare_jax()
if __name__ == "sitecustomize":
    _run_the_next()
