"""Parsers for files of checkpoints, one for each format. The file's size limits their time and memory."""
