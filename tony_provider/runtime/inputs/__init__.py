"""Inputs of a job: a list of files, made once for each job, whose shards are distributed to the tasks."""
