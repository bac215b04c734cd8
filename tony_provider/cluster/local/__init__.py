"""This machine as a cluster."""
