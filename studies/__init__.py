"""A script for each question of the papers, run by ``bermo-ray study NAME``."""
