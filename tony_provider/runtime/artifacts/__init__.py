"""Transfer of directory trees between a container's disk and the storage; unchanged files are sent only once."""
