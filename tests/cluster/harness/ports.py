"""Ports of the loopback."""

import random
import socket

from tests.cluster.harness.processes import Failed

# Below the range that Linux gives to outgoing connections (32768 and up), so that none is taken
# between being chosen and being bound.
PORTS = range(12000, 32000)


def free_port() -> int:
    """A port of the loopback on which nothing listens."""
    for port in random.sample(PORTS, 100):
        with socket.socket() as probe:
            # What was closed a moment ago may still be waiting (TIME_WAIT): that is no obstacle.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise Failed(f"no free port of the loopback was found in {PORTS.start} to {PORTS.stop - 1}")
