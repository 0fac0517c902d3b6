"""Entries and their vectors kept and searched: one protocol; SQLite, Milvus and Qdrant behind it."""
