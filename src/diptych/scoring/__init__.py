"""All pairs, fast and in bounded memory: blocks, groups of like length, candidates."""
