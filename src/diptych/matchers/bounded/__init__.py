"""How a matcher is called so that memory is bounded: what fits, groups of like length, halves where it runs out."""
