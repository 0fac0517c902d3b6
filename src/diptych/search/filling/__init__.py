"""Folders and tables to entries of a store: walk, plan, read, embed, write."""
