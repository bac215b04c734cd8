"""The user's end of tunnels to servers of a job's tasks: ports of this machine's loopback."""
