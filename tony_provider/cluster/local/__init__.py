"""The local backend: this machine as a cluster."""
