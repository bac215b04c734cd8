"""Files that look like checkpoints up to their checksums, and are made to run away with whoever reads them."""

from __future__ import annotations

import io
import json
import pickle
import struct
import zipfile
import zlib
from collections.abc import Callable

from tony_provider.runtime.common.binary import crc32c, masked_crc32c

_FOOTER_MAGIC = bytes.fromhex("57fb808b247547db")


def varint(value: int) -> bytes:
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def entry(shared: int, key: bytes, value: bytes) -> bytes:
    return varint(shared) + varint(len(key)) + varint(len(value)) + key + value


def block(entries: bytes) -> bytes:
    """A block of an index with its trailer: no compression, the right checksum."""
    content = entries + struct.pack("<II", 0, 1) + b"\0"
    return content + struct.pack("<I", masked_crc32c(crc32c(content)))


def index(data_block: bytes, handles: int = 1, header: bytes = b"\x08\x01") -> bytes:
    """A whole index whose root leads to one block as often as wanted."""
    first = data_block or block(entry(0, b"", header))
    meta = block(b"")
    handle = varint(0) + varint(len(first) - 5)
    root = block(b"".join(entry(0, b"k", handle) for _ in range(handles)))
    footer = varint(len(first)) + varint(len(meta) - 5) + varint(len(first) + len(meta)) + varint(len(root) - 5)
    return first + meta + root + footer.ljust(40, b"\0") + _FOOTER_MAGIC


def index_of_long_keys(size: int = 400_000) -> bytes:
    """Each key shares all of the one before: together they are some gigabytes."""
    long_key = b"x" * (size // 2)
    head = entry(0, b"", b"\x08\x01") + entry(0, long_key, b"")
    return index(block(head + entry(len(long_key) - 1, b"x", b"") * (size // 12)))


def index_of_one_block_again_and_again(size: int = 600_000) -> bytes:
    data = block(entry(0, b"", b"\x08\x01") + entry(0, b"w", b"\0" * (size // 2)))
    return index(data, handles=size // 16)


def index_with_a_number_without_an_end(size: int = 700_000) -> bytes:
    """The size of its tensor is one number of hundreds of kilobytes."""
    number = b"\x28" + b"\xff" * size + b"\x01"
    return index(block(entry(0, b"", b"\x08\x01") + entry(0, b"w", number)))


def index_of_a_million_files() -> bytes:
    return index(block(entry(0, b"", b"\x08" + varint(1_000_000))))


def doubled_tuple(levels: int) -> bytes:
    """The operations of a pickle for a tuple of two, which are one tuple of two, and so on."""
    return b")" + b"2\x86" * levels


def old_torch_file() -> bytes:
    """216 bytes: the key of its only storage is a tuple that takes 2 to the 60th steps to hash."""
    magic = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19."
    small = b"\x80\x02K\x01."
    keys = b"\x80\x02]" + doubled_tuple(60) + b"a."
    return (magic + small + small + b"\x80\x02}." + keys).ljust(216, b"\0")


def pickle_that_names_a_doubled_tuple() -> bytes:
    return b"\x80\x04" + doubled_tuple(40) + b"\x8c\x01x\x93."


def pickle_of_many_dictionaries(size: int = 60 << 20) -> bytes:
    return b"\x80\x02" + b"}" * size + b"."


def torch_archive(data: bytes, **more: bytes) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("model/data.pkl", data)
        for name, content in more.items():
            archive.writestr(f"model/{name}", content)
    return made.getvalue()


def zip_bomb(size: int = 4 << 30) -> bytes:
    """Zeros, once compressed and named by as many members as make up the size."""
    piece = zlib.compressobj(9, zlib.DEFLATED, -15)
    content = b"".join([piece.compress(bytes(64 << 20)), piece.flush()])
    crc = zlib.crc32(bytes(64 << 20))
    local = (
        struct.pack("<4s5H3I2H", b"PK\3\4", 20, 0, 8, 0, 0, crc, len(content), 64 << 20, 10, 0)
        + b"m/data.pkl"
        + content
    )
    count = size // (64 << 20)
    central = b"".join(
        struct.pack("<4s6H3I5H2I", b"PK\1\2", 20, 20, 0, 8, 0, 0, crc, len(content), 64 << 20, 10, 0, 0, 0, 0, 0, 0)
        + b"m/data.pkl"
        for _ in range(count)
    )
    end = struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, count, count, len(central), len(local), 0)
    return local + central + end


def npy(header: str) -> bytes:
    text = header.encode("latin-1")
    return b"\x93NUMPY\x02\x00" + struct.pack("<I", len(text)) + text


def safetensors(header: bytes) -> bytes:
    return struct.pack("<Q", len(header)) + header


def distributed_metadata(offset: object, length: object) -> bytes:
    states = {"relative_path": "__0_0.distcp", "offset": offset, "length": length}
    plain = pickle.dumps(states, 2)[:-1]
    return plain[:2] + b"cx\ny\n" + plain[2:] + b"b."


def nested_json(levels: int = 100_000) -> bytes:
    return b"[" * levels + b"]" * levels


def old_torch_file_of_huge_storages() -> bytes:
    """Its only storage has more elements than a file can have bytes."""
    storage = b"(X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\0ktQ."
    small = b"\x80\x02K\x01."
    magic = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19."
    return magic + small + small + b"\x80\x02" + storage + b"\x80\x02]X\x01\0\0\0ka." + b"\xff" * 8


def manifest(**changes: object) -> bytes:
    plain = {"step": 1, "entry": "a", "files": [{"path": "a", "size": 1}]}
    return json.dumps({**plain, **changes}).encode()


def wide_json(count: int = 5_000_000) -> bytes:
    return b'{"a":[' + b"[]," * count + b"[]]}"


# What a look at a directory with it did before: froze, took gigabytes, raised an error, or believed it.
FILES: dict[str, Callable[[], bytes]] = {
    "old.pt": old_torch_file,
    "keys.index": index_of_long_keys,
    "blocks.index": index_of_one_block_again_and_again,
    "number.index": index_with_a_number_without_an_end,
    "million.index": index_of_a_million_files,
    "name.pt": lambda: torch_archive(pickle_that_names_a_doubled_tuple()),
    "bomb.pt": zip_bomb,
    "far.pt": old_torch_file_of_huge_storages,
    "deep.safetensors": lambda: safetensors(nested_json()),
    "wide.safetensors": lambda: safetensors(wide_json()),
    "infinite.safetensors": lambda: safetensors(b'{"a":{"data_offsets":[0,1e999999]}}'),
    "digits.npy": lambda: npy("{'descr': '<f4', 'shape': (" + "9" * 4000 + ",)}"),
    "nested.npy": lambda: npy("{'descr': '<f4', 'shape': " + "(" * 10_000 + ")" * 10_000 + "}"),
    "deep.tony.json": nested_json,
    "digits.tony.json": lambda: manifest(step=10**400),
    "list.tony.json": lambda: manifest(files=[{"path": "list.tony.json", "size": 1, "checksum": ["crc32:1"]}]),
}
