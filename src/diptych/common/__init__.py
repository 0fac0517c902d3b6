"""What every room may use: errors, strict configuration, safe files, progress."""
