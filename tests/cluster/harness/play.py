"""A cluster to play with: `make cluster`. It runs until Ctrl-C and leaves nothing behind."""

import argparse
import shlex
import signal
import sys
import threading
from pathlib import Path

from tests.cluster.harness.cluster import Cluster
from tests.cluster.harness.processes import Failed


def write_kubectl(cluster: Cluster) -> Path:
    """Make a command `kubectl` that talks to the cluster; returns the folder that it lies in."""
    folder = cluster.directory / "bin"
    folder.mkdir()
    command = folder / "kubectl"
    binary, config = shlex.quote(str(cluster.binary)), shlex.quote(str(cluster.kubeconfig))
    command.write_text(
        f'#!/bin/sh\nexport KUBECONFIG="${{KUBECONFIG:-{config}}}"\nexec {binary} kubectl "$@"\n'
    )
    command.chmod(0o755)
    return folder


def say(text: str) -> None:
    """Print at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def play(nodes: int, devices: int, dra_nodes: int) -> None:
    """Start the cluster, tell how to use it, and wait for Ctrl-C or SIGTERM."""
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    # Few writes while nobody plays: a node that is lost is noticed after a minute.
    with Cluster(node_grace_s=60) as cluster:
        if nodes:
            cluster.fake_nodes.add("gpu", count=nodes, devices=devices)
        if dra_nodes:
            cluster.fake_nodes.add("dra", count=dra_nodes, devices=devices, channels=["dra"])
        folder = write_kubectl(cluster)
        say(
            f"A Kubernetes with {nodes + dra_nodes} fake nodes of {devices} devices is running.\n"
            f"\n"
            f"  export KUBECONFIG={cluster.kubeconfig}\n"
            f"  export PATH={folder}:$PATH\n"
            f"  kubectl get nodes\n"
            f"\n"
            f"Its logs are in {cluster.directory / 'logs'}. Ctrl-C ends it and removes everything."
        )
        while not stop.wait(1):
            for each in (cluster.etcd, cluster.api_server):
                if not each.running:
                    raise Failed(f"{each.name} ended.\n{each.tail()}")
    say("The cluster is gone.")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="make cluster", description="A real Kubernetes with fake nodes, until Ctrl-C."
    )
    parser.add_argument("--nodes", type=int, default=8, help="with a device plugin (8)")
    parser.add_argument("--dra-nodes", type=int, default=2, help="with a DRA driver (2)")
    parser.add_argument("--devices", type=int, default=8, help="on each node (8)")
    given = parser.parse_args()
    try:
        play(given.nodes, given.devices, given.dra_nodes)
    except Failed as failed:
        sys.exit(str(failed))


if __name__ == "__main__":
    main()
