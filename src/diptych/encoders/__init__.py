"""One side on its own: pictures or sentences to local vectors, and local vectors to fewer."""
