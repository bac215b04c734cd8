"""The job specification: ``model`` says what a job is; ``parsing`` beside it reads what people write."""
