"""Groups of processes whose threads end before Python: one that lets go of a tensor while Python ends aborts it."""


def before_group() -> None:
    """To be called before a group begins: nothing shall hold on to it.

    These functions take the group that there is when they are imported as their default argument, for ever.
    """
    import torch.distributed.nn.functional  # noqa: F401


def end_group() -> None:
    """End this process's groups, if there are any."""
    import torch.distributed as dist

    if dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()
