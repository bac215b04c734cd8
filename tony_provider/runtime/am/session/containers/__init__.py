"""Getting containers, losing them, giving them back."""
