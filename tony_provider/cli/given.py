"""What a submission from a command line is given beside the job: values of secrets, and where it comes from."""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Sequence

from tony_provider.exceptions import TonySpecError


def secrets_of(names: Sequence[str]) -> dict[str, str]:
    """From the environment: what is on a command line can be read by everybody. Raises TonySpecError."""
    if missing := [name for name in names if name not in os.environ]:
        raise TonySpecError(f"--secret: the environment has no {', '.join(missing)}, whose value it should be")
    return {name: os.environ[name] for name in names}


def labels_of(run_id: str) -> dict[str, str]:
    """Whose submission it is, and which run of the training."""
    return {"submitted_by": getpass.getuser(), "submitted_from": socket.gethostname(), "run_id": run_id}
