"""Notebooks: the job of one container that is made of a training's, and what is found of a training for it."""
