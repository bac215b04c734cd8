"""TonyHook, through which operators, sensors, triggers and commands use a cluster, and the connections behind it."""
