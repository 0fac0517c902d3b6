"""Encoders once more for the CPU, without gradients: what an inference runtime makes of a trained encoder's weights."""
