"""Which requests to TensorBoard's plug-ins pass: those that read the job's own curves.

The server side of a plug-in can do anything. That of the profiler connects to every address, and opens every path and
URI, that a request names, as the job's user. People who may view the job may not do that.
"""

from __future__ import annotations

import re
from urllib.parse import parse_qs

# Also below /experiment/<id>. Looks ahead, so that no name before a route hides it.
_PLUGIN = re.compile(r"(?=/data/+plugin/+([^/]+)/*(.*))", re.DOTALL)
_READERS = frozenset(
    (
        *("audio", "core", "custom_scalars", "debugger-v2", "distributions", "graphs", "histograms", "hparams"),
        *("images", "mesh", "npmi", "pr_curves", "profile_redirect", "projector", "pytorch_profiler", "scalars"),
        *("text", "text_v2", "timeseries", "wit_redirect"),
    )
)
_PROFILER = "profile"
_PROFILER_READS = frozenset(
    ("", "config", "data", "data_csv", "hosts", "local", "module_list", "run_tools", "runs", "tools", "version")
)
_STATIC = re.compile(r"[\w-]+\.(?:css|html|js|wasm|woff2)")
_PLACES = frozenset(("run_path", "service_addr", "session_path", "worker_list"))  # parameters that name other places
_INSTEAD = "`airflow tony tensorboard` shows it on a machine of your own"


def refusal(path: str, query: str) -> str:
    """Return why a request does not pass, or an empty string."""
    for name, route in _PLUGIN.findall(path):
        if name in _READERS:
            continue
        if name != _PROFILER:
            return f"The page of the plug-in {name} is not shown here; {_INSTEAD}"
        if places := sorted(_PLACES & parse_qs(query, keep_blank_values=True).keys()):
            return f"The profiler does not go to other places from here ({', '.join(places)})"
        if route.rstrip("/") not in _PROFILER_READS and not _STATIC.fullmatch(route.rstrip("/")):
            return f"The profiler's {route} is not available here; {_INSTEAD}"
    return ""
