"""Parsers for files of checkpoints, one for each format. The size of a file limits the parser's time and memory."""
