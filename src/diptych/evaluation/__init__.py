"""Scores to ranks to figures; protocols; comparison of runs; the papers' tables."""
