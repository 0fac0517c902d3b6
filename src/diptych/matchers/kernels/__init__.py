"""Fused GPU kernels in Triton that matchers score with, a file a paper; each has its plain PyTorch path beside it."""
