"""How many bytes are read at most of what somebody else has written: the one table of these bounds.

A job writes in its directory what it likes, and a file there may be anything by the time it is read. Each bound is
several times what ours come to. What JSON takes beside its bytes is bounded by ``foreign_json``.
"""

from __future__ import annotations

STATUS = 32 << 20  # status.json, result.json: of ten thousand tasks less than ten MiB
APPLICATION = 16 << 20  # the description of an application, its job specification included
RECORD = 1 << 20  # a small one: who owns a chain, that a result was delivered, a model's version
FORMER_RUNS = 16 << 20  # what ten applications of a task of a DAG have used
RETURN_VALUE = 16 << 20  # return_value.json: up to 1 MiB as the program wrote it, and longer in our words
MANIFEST = 64 << 20  # of a committed checkpoint, of some hundred thousand files
COMMITS = 16 << 20  # one file of a shard log; full with 256 KiB
EVENT_SEGMENT = 16 << 20  # one segment of the event log, compressed; all of them are half a MiB
FETCHED_PART = 64 << 20  # a task's part of an input, of some hundred thousand files
MASTER_ANSWER = 32 << 20  # of an application master, over the proxy
YARN_ANSWER = 256 << 20  # of a ResourceManager: a listing of a hundred thousand applications
NODE_ANSWER = 16 << 20  # of a NodeManager: its configuration, some 200 KiB, or the end of a container's log
ADDRESSES = 16 << 20  # of all tasks, unpacked: some 60 bytes each
