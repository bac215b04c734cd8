"""Time: what happens when nobody says anything, and what is known before it happens."""
