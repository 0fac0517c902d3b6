"""A run on one page: curves, tables and figures in one file."""
