"""The job's TensorBoard below ``tensorboard/``: its pages come over the stream of its side-car's executor."""
