"""The return value of a job: the JSON that its chief, or rank 0, leaves in TONY_RESULT_FILE."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Optional

from tony_provider.runtime import contract
from tony_provider.runtime.codec import to_plain
from tony_provider.runtime.reserved_keys import WHY, reserved_key
from tony_provider.runtime.storage import Storage
from tony_provider.runtime.storage.helpers import write_atomically


class ReturnedError(Exception):
    """What a user process left in TONY_RESULT_FILE is not what it may return."""


def read_returned(file: Path) -> Optional[bytes]:
    """What the file returns, as strict JSON: infinity and NaN have become text. None: the process has left nothing.

    Raises ReturnedError, OSError.
    """
    if not os.path.lexists(file):
        return None
    if not file.is_file():  # a FIFO would be read for ever
        raise ReturnedError(f"{contract.ENV_RESULT_FILE} is no file, nor a link to one")
    with file.open("rb") as opened:
        data = opened.read(contract.MAX_RESULT + 1)
    if len(data) > contract.MAX_RESULT:
        raise ReturnedError(
            f"{contract.ENV_RESULT_FILE} holds more than {contract.MAX_RESULT >> 20} MiB; leave what is large in "
            f"{contract.ENV_MODEL_DIR}"
        )
    try:
        plain = to_plain(json.loads(data))
        if key := reserved_key(plain):
            raise ReturnedError(f"{contract.ENV_RESULT_FILE} holds {key!a}, which {WHY}")
        return json.dumps(plain, allow_nan=False, ensure_ascii=False).encode()
    except RecursionError as error:
        raise ReturnedError(f"{contract.ENV_RESULT_FILE} is nested too deeply") from error
    except UnicodeEncodeError as error:  # half of a surrogate pair, which JSON may hold
        raise ReturnedError(f"{contract.ENV_RESULT_FILE} holds text that UTF-8 cannot write: {error}") from error
    except ValueError as error:
        raise ReturnedError(f"{contract.ENV_RESULT_FILE} holds no JSON: {error}") from error


def keep_returned(storage: Storage, uri: str, returned: Optional[bytes], *, may_exist: bool) -> None:
    """Put the return value, and nothing else, at ``uri``. ``may_exist``: an earlier start may have left one there.

    Blocks; raises StorageError.
    """
    if returned is not None:
        write_atomically(storage, uri, returned)
    elif may_exist:
        storage.remove(uri)
