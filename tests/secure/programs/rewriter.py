"""A program that rewrites what other jobs of its user will run: on the store with the job's token, or on its node.

TARGETS: one a line, `store URL CA-FILE` (of a WebHDFS server, with the path), `node PATH`, or `runtime MARKER`, for
this node's copy of the runtime, which then writes the file MARKER when it runs; TEXT: what is written. With FROM the
content is that file's of this directory, with FROM_TEXT in it replaced by TEXT; the file on the store keeps its time.
"""

import json
import os
import ssl
import sys
import urllib.error
import urllib.request
import zipfile
from pathlib import Path
from urllib.parse import quote

sys.path.insert(0, "tony")
from tony_provider.runtime.hadoop.tokens import WEBHDFS_TOKEN, Credentials, Token


def on_store(url, authority):
    credentials = Credentials.read_file(os.environ["HADOOP_TOKEN_FILE_LOCATION"])
    token = next(iter(credentials.tokens.values()))
    proof = Token(token.identifier, token.password, WEBHDFS_TOKEN, token.service).to_url_string()
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}),
        urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=authority)),
    )

    def ask(method, act, more=""):
        return send(method, f"{url}?op={act}&delegation={quote(proof)}{more}")

    def send(method, address, data=None):
        headers = {"Content-Type": "application/octet-stream"}
        request = urllib.request.Request(address, data=data, method=method, headers=headers)
        with opener.open(request, timeout=60) as answer:
            return answer.read()

    time = json.loads(ask("GET", "GETFILESTATUS"))["FileStatus"]["modificationTime"]
    # The file itself is read-only; whoever may write in its directory makes another.
    ask("DELETE", "DELETE")
    send("PUT", json.loads(ask("PUT", "CREATE", more="&noredirect=true"))["Location"], content())
    ask("PUT", "SETTIMES", more=f"&modificationtime={time}")
    return "anew"


def content():
    text = os.environ["TEXT"].encode()
    if "FROM" not in os.environ:
        return text
    return Path(os.environ["FROM"]).read_bytes().replace(os.environ["FROM_TEXT"].encode(), text)


def on_node(path):
    real = Path(path).resolve()
    real.chmod(0o700)
    real.write_text(os.environ["TEXT"])
    return real


def on_runtime(marker):
    """In each form that nodes have had it."""
    code = f"import sys; open({marker!r}, 'a').write('ran')"
    unpacked = Path("tony", "main.py").resolve()
    if unpacked.exists():
        unpacked.chmod(0o700)
        unpacked.write_text(code)
        return unpacked
    copy = Path("tony-runtime.zip").resolve()
    copy.chmod(0o700)
    with zipfile.ZipFile(copy, "w") as archive:
        archive.writestr("cp{}{}/start.py".format(*sys.version_info[:2]), code)
    return copy


_BY_KIND = {"store": on_store, "node": on_node, "runtime": on_runtime}
for line in os.environ["TARGETS"].splitlines():
    kind, *words = line.split(" ")
    print("rewritten", line, _BY_KIND[kind](*words))
