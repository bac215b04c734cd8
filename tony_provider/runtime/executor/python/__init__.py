"""The Python of a user process: made of what the container got for the job's ``python_env``, once for all starts."""
