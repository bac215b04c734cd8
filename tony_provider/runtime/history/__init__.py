"""History of an application: series of task samples and its event log, in small files on the store."""
