"""Keys of Airflow's serialization, which a job's own data must not contain.

If Airflow reads a mapping with such a key, for example from an XCom in the next task, Airflow makes an object of the
mapping or fails the task.
"""

from __future__ import annotations

from typing import Any, Optional

from tony_provider.runtime.spec.problems import child, item

# The keys of airflow.sdk.serde, and the keys of former releases that it still reads.
RESERVED_KEYS = frozenset(
    {"__classname__", "__version__", "__data__", "__id__", "__cache__", "__type", "__var", "__source"}
)
WHY = "is a key of Airflow's own serialization, which would make an object of the value; use another key"


def reserved_key(plain: Any) -> Optional[str]:
    """Return the path of a reserved key in parsed JSON, such as ``scores[0].__type``, or None if there is none."""
    waiting = [("", plain)]
    while waiting:
        path, value = waiting.pop()
        if isinstance(value, dict):
            if found := sorted(RESERVED_KEYS & value.keys()):
                return child(path, found[0])
            waiting += [(child(path, key), below) for key, below in value.items() if isinstance(below, (dict, list))]
        elif isinstance(value, list):
            waiting += [(item(path, at), below) for at, below in enumerate(value) if isinstance(below, (dict, list))]
    return None
