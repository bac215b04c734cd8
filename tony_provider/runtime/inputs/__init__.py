"""Inputs of a job. The files of an input are listed once for each job, and distributed to the tasks as shards."""
