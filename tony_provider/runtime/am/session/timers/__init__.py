"""What happens when nothing happens, and what is known before it happens."""
