"""Storage on HDFS over WebHDFS, only with the standard library, because the nodes run it as well."""
