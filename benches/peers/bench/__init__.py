"""The comparison with other databases. `__main__.py` is the order of things; each database is a file of its own."""
