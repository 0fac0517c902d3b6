"""What tests with several processes need."""

import os
import socket
import subprocess
import sys

# Printed by a process of a group: what is left of its threads when all else is over.
TELL_THREADS = """
import atexit, os
def tell():
    names = [open(f"/proc/self/task/{task}/comm").read().strip() for task in os.listdir("/proc/self/task")]
    print([name for name in names if "gloo" in name])
"""


def free_port() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return str(free.getsockname()[1])


def in_group(world: int, arguments: list[str], **environment: str) -> "list[subprocess.Popen[str]]":
    """Python's processes that torchrun would start."""
    common = {"WORLD_SIZE": str(world), "LOCAL_WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1"}
    common |= {"MASTER_PORT": free_port(), "OMP_NUM_THREADS": "1"}
    pipe = subprocess.PIPE
    started = []
    for rank in range(world):
        own = os.environ | common | {"RANK": str(rank), "LOCAL_RANK": str(rank)} | environment
        started.append(subprocess.Popen([sys.executable, *arguments], env=own, stdout=pipe, stderr=pipe, text=True))
    return started
