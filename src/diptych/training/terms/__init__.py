"""Extra terms beside the loss, one a file; a recipe names them with their weights."""
