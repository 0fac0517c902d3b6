"""What comes in: formats, captions, tokens, features, batches."""
