"""Two studies side by side."""
