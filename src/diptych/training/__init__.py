"""A recipe to a run: losses, loop, schedules, checkpoints, several devices."""
