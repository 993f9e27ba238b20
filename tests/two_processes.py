"""The command that starts two gloo processes by torchrun on any machine, whatever its name resolves to and however busy it is."""

import os
import sys

PATIENCE = 900  # seconds: only a test that hangs takes them
# torchrun would tell the processes to meet at the machine's own name, which need not lead anywhere.
HERE = ("--standalone", "--local-addr=127.0.0.1", "--nproc-per-node=2")


def two_processes(*arguments):
    """The words of the command."""
    return [sys.executable, "-m", "torch.distributed.run", *HERE, *map(str, arguments)]


def environment():
    """For both processes: one thread each, and gloo on the loopback device, the only one that every machine has."""
    loopback = {"GLOO_SOCKET_IFNAME": "lo"} if sys.platform == "linux" else {}
    return os.environ | {"OMP_NUM_THREADS": "1"} | loopback
