"""Watching a job through the hook, as operators, triggers, sensors and commands do: until it ends, or is ended."""
