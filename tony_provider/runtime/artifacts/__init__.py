"""Transfer of directory trees between a container's disk and the storage, without sending unchanged files again."""
