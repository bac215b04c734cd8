"""The hook: the one door through which operators, sensors, triggers and commands reach a cluster."""
