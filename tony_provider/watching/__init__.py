"""Observation of running jobs through the hook, shared by operators, triggers, sensors and commands."""
