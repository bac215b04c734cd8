"""What all commands have in common: no log lines, and messages in place of tracebacks."""

from __future__ import annotations

import functools
import sys
from argparse import Namespace
from collections.abc import Callable

from airflow.utils.cli import suppress_logs_and_warning

from tony_provider.airflow_versions.capabilities import AirflowTooOld
from tony_provider.cluster.errors import ClusterError
from tony_provider.configuration import ConfigurationProblem
from tony_provider.exceptions import TonySpecError
from tony_provider.hooks.metastore import connections_of_database
from tony_provider.runtime.storage.errors import StorageError
from tony_provider.runtime.text import printable

Command = Callable[[Namespace], None]

_INTERRUPTED = 130  # as shells say it


def command(function: Command) -> Command:
    """Decorator for the function of a command: hides log lines and turns known errors into a message.

    Airflow's log lines are not for those who look at a command (``--verbose`` shows them). What a person can mend is
    told in one message in place of a traceback; the exit code is 1 then.
    """

    @functools.wraps(function)
    def run(args: Namespace) -> None:
        try:
            with connections_of_database():
                function(args)
        except (ClusterError, StorageError, TonySpecError, ConfigurationProblem, AirflowTooOld) as error:
            sys.stdout.flush()
            raise SystemExit(printable(str(error))) from error  # with names and words of a job's
        except KeyboardInterrupt:
            raise SystemExit(_INTERRUPTED) from None
        except BrokenPipeError:  # as when it is piped into head
            sys.stdout = None
            raise SystemExit(1) from None

    return suppress_logs_and_warning(run)
