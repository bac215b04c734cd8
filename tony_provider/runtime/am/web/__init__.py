"""The application master's page and control: HTTP behind the cluster's proxy."""
