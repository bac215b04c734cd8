"""The YARN backend: a cluster reached over REST, with Kerberos where it asks for that."""
