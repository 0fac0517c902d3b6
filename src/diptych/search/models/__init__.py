"""What an index embeds pictures and sentences with."""
