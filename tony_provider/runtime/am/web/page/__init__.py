"""What people see of a job in their browser."""
