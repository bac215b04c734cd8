"""The application master's side of inputs: it lists them once, and deals their shards to the tasks."""
