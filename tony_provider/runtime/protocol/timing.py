"""How often the two ends of the protocol speak, and when one gives the other up. Seconds."""

from __future__ import annotations

HEARTBEAT_INTERVAL = 3.0  # an executor sends one this often
CONNECT_TIMEOUT = 5.0  # for one connection to the application master, its TLS handshake included
KEEPALIVE_INTERVAL = 10.0  # of gRPC's own pings, which notice a peer whose machine is gone
KEEPALIVE_TIMEOUT = 10.0  # for the answer to one
KEEP_LOGS = 30.0  # an executor has this long beyond its user process's grace, for its last uploads
MASTER_LOST_AFTER = 60.0  # an executor without its application master stops its user process after this time
