"""An index of pictures and sentences: stores, two stages, confidence."""
