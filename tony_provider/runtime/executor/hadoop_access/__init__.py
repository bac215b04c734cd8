"""The user process's own access to Hadoop, with the job's key ``hadoop``: tokens, configuration, class path."""
