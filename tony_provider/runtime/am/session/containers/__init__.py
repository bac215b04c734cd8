"""The job's containers: getting them, losing them, giving them back."""
