"""What the matchers score with on a GPU: fused kernels in Triton, a file a paper, each beside its plain PyTorch path."""
