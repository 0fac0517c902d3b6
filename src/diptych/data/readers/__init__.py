"""One file a format: each reads what it finds into items, and tells what is wrong with it."""
