"""Losses over a matrix of scores, one a file.

Similarity (the matcher's), mining (which negatives count), loss and reduction are parts that combine freely.
"""
