"""How often the ends of a job speak, how long they let each other take, and when one gives another up. Seconds."""

from __future__ import annotations

HEARTBEAT_INTERVAL = 3.0  # an executor sends one this often
CONNECT_TIMEOUT = 5.0  # for one connection to the application master, its TLS handshake included
KEEPALIVE_INTERVAL = 10.0  # of gRPC's own pings, which notice a peer whose machine is gone
KEEPALIVE_TIMEOUT = 10.0  # for the answer to one
KEEP_LOGS = 30.0  # an executor has this long beyond its user process's grace, for its last uploads
RELEASE_WAIT = 10.0  # until an application master no longer waits for a container that it has released
MASTER_LOST_AFTER = 60.0  # an executor without its application master stops its user process after this time
