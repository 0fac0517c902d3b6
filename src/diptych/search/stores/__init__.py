"""Entries and their vectors kept and searched: one protocol, SQLite and Milvus behind it."""
