"""Checkpoints that the papers' authors published, turned into matchers. One file a paper; nothing in them is run."""
