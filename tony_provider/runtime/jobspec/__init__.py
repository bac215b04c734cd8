"""The job specification: ``model`` defines its classes; the package ``parsing`` reads YAML, JSON and mappings."""
