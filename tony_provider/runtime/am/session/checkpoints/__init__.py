"""Effects of checkpoints on the session: which tasks save, which checkpoint is the newest, where the job resumes."""
