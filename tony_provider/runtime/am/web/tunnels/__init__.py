"""Tunnels of users to servers of the job's tasks, as ``PUT control/tunnel`` carries them."""
