"""Transfer of directory trees between a container's disk and the storage. Unchanged files are not sent again."""
