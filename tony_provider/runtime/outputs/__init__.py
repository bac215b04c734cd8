"""Output directories of tasks: where they are staged while the job runs, and how they are published to their paths."""
