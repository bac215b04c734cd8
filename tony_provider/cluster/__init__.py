"""Where a job runs, seen from outside: the Cluster interface, YARN and this machine behind it, staging, credentials."""
