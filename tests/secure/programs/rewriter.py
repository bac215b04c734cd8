"""A program that rewrites what other jobs of its user will run: on the store with the job's token, or on its node.

TARGETS: one a line, `store URL CA-FILE` (of a WebHDFS server, with the path) or `node PATH`; TEXT: what is written.
"""

import os
import ssl
import sys
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import quote

sys.path.insert(0, "tony")
from tony_provider.runtime.hadoop.tokens import WEBHDFS_TOKEN, Credentials, Token


class Onward(urllib.request.HTTPRedirectHandler):
    """A PUT goes to where the NameNode sends it."""

    def redirect_request(self, request, answer, code, message, headers, url):
        return urllib.request.Request(url, data=request.data, method="PUT")


def on_store(url, authority):
    credentials = Credentials.read_file(os.environ["HADOOP_TOKEN_FILE_LOCATION"])
    token = next(iter(credentials.tokens.values()))
    proof = Token(token.identifier, token.password, WEBHDFS_TOKEN, token.service).to_url_string()
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}),
        urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=authority)),
        Onward(),
    )
    # The file itself is read-only; whoever may write in its directory makes another.
    for method, act, data in (("DELETE", "DELETE", None), ("PUT", "CREATE", os.environ["TEXT"].encode())):
        request = urllib.request.Request(f"{url}?op={act}&delegation={quote(proof)}", data=data, method=method)
        with opener.open(request, timeout=60) as answer:
            answer.read()
    return "anew"


def on_node(path):
    real = Path(path).resolve()
    real.chmod(0o700)
    real.write_text(os.environ["TEXT"])
    return real


for line in os.environ["TARGETS"].splitlines():
    kind, *words = line.split(" ")
    print("rewritten", line, (on_store if kind == "store" else on_node)(*words))
