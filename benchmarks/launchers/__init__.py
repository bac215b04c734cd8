"""Who is measured in `benchmarks.launch`: each starts the same trivial job in its own way."""
