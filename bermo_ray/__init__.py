"""Studies that make BERT-like encoders smaller, distributed by Ray."""

__version__ = "0.1.0"
