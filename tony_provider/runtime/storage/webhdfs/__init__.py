"""Storage on HDFS over WebHDFS. It also runs on the nodes, so it uses only Python's own HTTP library."""
