"""What others are told of a training, each only where it is wanted: statsd, OpenTelemetry, MLflow."""
