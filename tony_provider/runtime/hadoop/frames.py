"""Frames of Hadoop RPC 9: a 4-byte big-endian length, then messages, each with a varint length before it."""

from __future__ import annotations

from typing import TypeVar

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message

from tony_provider.runtime.hadoop.errors import RpcProtocolError

M = TypeVar("M", bound=Message)

LENGTH_BYTES = 4
# What Hadoop's own client accepts (ipc.maximum.response.length).
MAX_FRAME_BYTES = 128 * 1024 * 1024

_VARINT_BYTES = 5  # of a 32-bit length


def encode_varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def delimited(data: bytes) -> bytes:
    return encode_varint(len(data)) + data


def split_delimited(data: bytes) -> tuple[bytes, bytes]:
    """The first length-prefixed part of ``data``, and what follows it. Raises ValueError."""
    length = 0
    for position, byte in enumerate(data[:_VARINT_BYTES]):
        length |= (byte & 0x7F) << 7 * position
        if byte < 0x80:
            start = position + 1
            if length > len(data) - start:
                raise ValueError(f"a message of {length} bytes in {len(data) - start}")
            return data[start : start + length], data[start + length :]
    raise ValueError("a message's length does not end")


def encode_frame(*messages: Message) -> bytes:
    """The frame that carries these messages."""
    body = b"".join(delimited(message.SerializeToString()) for message in messages)
    return len(body).to_bytes(LENGTH_BYTES, "big") + body


def take_message(message_type: type[M], data: bytes) -> tuple[M, bytes]:
    """The first message in ``data``, and what follows it. Raises RpcProtocolError."""
    message = message_type()
    try:
        encoded, rest = split_delimited(data)
        parse_into(message, encoded)
    except (DecodeError, ValueError) as error:
        raise RpcProtocolError(f"malformed {message_type.DESCRIPTOR.name}: {error}") from error
    return message, rest


def parse_into(message: Message, encoded: bytes) -> None:
    """Fill ``message`` from its encoding.

    Raises DecodeError, also for what protobuf lets pass: missing required fields, text that is no UTF-8.
    """
    message.ParseFromString(encoded)
    if not message.IsInitialized():
        raise DecodeError("required fields are missing")
    _check_text(message)


def _check_text(message: Message) -> None:
    # In proto2 the parser hands out text that is not UTF-8 as bytes.
    for field, value in message.ListFields():
        values = value if field.is_repeated else (value,)
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            for part in values:
                _check_text(part)
        elif field.type == FieldDescriptor.TYPE_STRING and not all(isinstance(text, str) for text in values):
            raise DecodeError(f"{field.name} is not UTF-8")


def last_message(message_type: type[M], data: bytes) -> M:
    """The one message in ``data``. Raises RpcProtocolError."""
    message, rest = take_message(message_type, data)
    if rest:
        raise RpcProtocolError(f"{len(rest)} bytes follow {message_type.DESCRIPTOR.name}")
    return message


class FrameBuffer:
    """Collects bytes as they come and gives whole frames out, without their lengths."""

    def __init__(self, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """The frames that ``data`` completes; raises RpcProtocolError for a length that cannot be."""
        self._buffer += data
        frames = []
        while len(self._buffer) >= LENGTH_BYTES:
            length = int.from_bytes(self._buffer[:LENGTH_BYTES], "big")
            if length > self._max_frame_bytes:
                start = bytes(self._buffer[:16])
                raise RpcProtocolError(
                    f"a frame of {length} bytes, more than {self._max_frame_bytes}: "
                    f"probably no Hadoop RPC server, it answers {start!r}"
                )
            end = LENGTH_BYTES + length
            if len(self._buffer) < end:
                break
            frames.append(bytes(self._buffer[LENGTH_BYTES:end]))
            del self._buffer[:end]
        return frames
