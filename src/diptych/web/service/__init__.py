"""What the server does, for the API and the page alike."""
