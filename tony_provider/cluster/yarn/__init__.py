"""YARN backend: a cluster that is reached over REST, with Kerberos if the cluster requires it."""
