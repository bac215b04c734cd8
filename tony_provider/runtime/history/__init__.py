"""What an application leaves for later: series of what its tasks used and reported, in small files."""
