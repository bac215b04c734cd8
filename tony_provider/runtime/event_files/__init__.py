"""Copying TensorBoard event files from the store, and running TensorBoard on the copy, in a sidecar or locally."""
