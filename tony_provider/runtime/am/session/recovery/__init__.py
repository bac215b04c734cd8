"""Going on where a former application master has stopped."""
