"""Filter requests to TensorBoard's plug-ins: only requests that read the job's own curves pass.

The server side of a plug-in can do anything. The profiler's server side connects to every address, and opens every path
and URI, that a request names, as the job's user. People who may only view the job must not be able to do that.
"""

from __future__ import annotations

import re
from urllib.parse import parse_qs

# Routes may also lie below /experiment/<id>. The lookahead finds every route in a path, so that no part hides a route.
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
_INSTEAD = "`airflow tony tensorboard` shows it on your own machine"


def refusal(path: str, query: str) -> str:
    """Return why a request is refused, or an empty string if it passes."""
    for name, route in _PLUGIN.findall(path):
        if name in _READERS:
            continue
        if name != _PROFILER:
            return f"This page does not show the plug-in {name}; {_INSTEAD}"
        if places := sorted(_PLACES & parse_qs(query, keep_blank_values=True).keys()):
            return f"The profiler on this page opens no other places ({', '.join(places)})"
        if route.rstrip("/") not in _PROFILER_READS and not _STATIC.fullmatch(route.rstrip("/")):
            return f"The profiler's {route} is not available on this page; {_INSTEAD}"
    return ""
