"""A YARN cluster, over REST; Kerberos where it asks for that."""
