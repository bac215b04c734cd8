"""The application master's web server: job page, logs, metrics, control, TensorBoard and tunnels."""
