"""The application master's side of outputs: it takes what counts of what the tasks have left to its path."""
