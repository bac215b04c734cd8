"""What a file of a checkpoint says of itself: a small parser for each form, bounded by what the file's size allows."""
