"""Load gRPC without its fork handlers. Import this module before every other module that loads gRPC.

Before Python 3.10, subprocess starts most programs by a fork. The handlers of gRPC run in the child process, and crash
about one child of ten before it runs its program. A variable turns them off; gRPC reads it once, while loading.
This module then restores the variable, because user programs inherit the environment and may need the handlers.
"""

from __future__ import annotations

import os

_VARIABLE = "GRPC_ENABLE_FORK_SUPPORT"

_given = os.environ.get(_VARIABLE)
os.environ[_VARIABLE] = "0"

import grpc  # noqa: E402, F401

del os.environ[_VARIABLE]
if _given is not None:
    os.environ[_VARIABLE] = _given
