"""Programs that a process starts while gRPC works in it: all of them run, on the Python of this test.

`make pythons` runs this test on Python 3.9, where each of these programs is a fork of the process.
"""

from __future__ import annotations

import os
import subprocess
import sys

VARIABLE = "GRPC_ENABLE_FORK_SUPPORT"
PROGRAM = f"""
import asyncio, collections, os, subprocess
from tony_provider.runtime.common import grpc_without_fork_handlers
import grpc.aio

async def echo(requests, context):
    async for request in requests:
        await context.write(request)

def start():
    return subprocess.run(["/bin/true"], start_new_session=True, stdout=subprocess.PIPE, timeout=60).returncode

async def talk(call):
    while True:
        await call.write(b"x")
        await call.read()

async def main():
    server = grpc.aio.server()
    method = grpc.stream_stream_rpc_method_handler(echo)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("tests", {{"echo": method}}),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{{port}}") as channel:
        talking = asyncio.ensure_future(talk(channel.stream_stream("/tests/echo")()))
        codes = collections.Counter([await asyncio.to_thread(start) for _ in range(100)])
        assert not talking.done(), talking
        talking.cancel()
    await server.stop(0)
    print(dict(codes), os.environ.get({VARIABLE!r}))

asyncio.run(main())
"""


def test_programs_run_and_the_environment_is_the_users() -> None:
    """On Python 3.9, SIGABRT or SIGSEGV ended about one program of ten before it ran."""
    for given in ({}, {VARIABLE: "1"}):
        environ = {name: value for name, value in os.environ.items() if name != VARIABLE} | given
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM], env=environ, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.stdout == f"{{0: 100}} {given.get(VARIABLE)}\n", done.stdout + done.stderr
