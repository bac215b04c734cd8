"""Transfer of directory trees between a container's disk and the storage: unchanged files travel once."""
