"""Series of what each task used and reported, kept on the store in segments, within a bound of bytes."""
