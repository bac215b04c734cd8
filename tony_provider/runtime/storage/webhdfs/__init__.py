"""Storage on HDFS over WebHDFS. It needs no HTTP library except Python's own, because it also runs on the nodes."""
