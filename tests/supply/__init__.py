"""What the project is made of: its bill of materials, hashes, and known holes. Run by ``make``; needs uv alone."""
