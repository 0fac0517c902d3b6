"""A query to its results: terms, searcher, second stage, confidence."""
