"""What stands before the routers, and sees every request."""
