"""Event files: kept on the store by the executors of those who write them, shown by TensorBoard in a side-car."""
