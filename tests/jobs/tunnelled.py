"""A program with servers on its node's loopback, until the file GO is there.

TONY_PORT gives back what it gets. The others have ports of their own, which it prints: one says more than anybody
reads, and one speaks WebSocket.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from websockets.asyncio.server import ServerConnection, serve

HOST = "127.0.0.1"
PORTS = range(20000, 32000)
FLOOD = 32 << 20  # bytes

Serve = Callable[[int], Awaitable[object]]


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.write(b"|over")  # once the other side has closed its way
    writer.close()


async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.transport.set_write_buffer_limits(0)
    sent = 0
    try:
        while sent < FLOOD:
            writer.write(bytes(65536))
            await writer.drain()
            sent += 65536
            print("sent", sent, flush=True)
    except OSError:
        print("broken off", flush=True)


async def shout(connection: ServerConnection) -> None:
    async for message in connection:
        await connection.send(str(message).upper())


async def somewhere(name: str, serving: Serve) -> None:
    for port in random.sample(PORTS, 100):
        try:
            await serving(port)
        except OSError:
            continue
        print(name, port, flush=True)
        return


async def main() -> None:
    await asyncio.start_server(echo, HOST, int(os.environ["TONY_PORT"]))
    await somewhere("flood", lambda port: asyncio.start_server(flood, HOST, port))
    await somewhere("websocket", lambda port: serve(shout, HOST, port).__aenter__())
    print("listening", flush=True)
    await asyncio.to_thread(until_told)
    os._exit(0)  # whoever is still connected


def until_told() -> None:
    while not Path(os.environ["GO"]).exists():
        time.sleep(0.1)


asyncio.run(main())
