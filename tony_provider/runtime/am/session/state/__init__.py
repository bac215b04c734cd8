"""Where everything stands: the tasks and their processes, the job, and how it ended."""
