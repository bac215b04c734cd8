"""The recovery of a job by a new application master, where a former one has stopped."""
