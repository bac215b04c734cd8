"""Copy TensorBoard event files from the store, and run TensorBoard on the copy, in a sidecar or locally."""
