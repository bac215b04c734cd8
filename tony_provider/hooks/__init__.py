"""The one door that operators, sensors and triggers use."""
