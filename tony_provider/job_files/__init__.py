"""Job files: the parameters that one may name, their values filled in, and job and DAG files as they are written."""
