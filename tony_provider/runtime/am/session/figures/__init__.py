"""Figures of the whole job: where its time went, and what its tasks asked for and used."""
