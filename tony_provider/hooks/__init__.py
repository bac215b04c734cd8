"""The one door that operators and triggers use."""
