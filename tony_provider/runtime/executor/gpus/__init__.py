"""The GPUs of a node that does not isolate them, dealt to its containers by locks."""
