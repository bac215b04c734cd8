"""The job specification: ``model`` defines what a job is; the folder ``parsing`` reads what people write."""
