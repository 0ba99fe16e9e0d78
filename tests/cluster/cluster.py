"""Three nodes or more as processes, and a real driver: `cluster.py --torc BINARY [--nodes NUMBER] [--old BINARY] [SCENARIO...]`.

Scenarios stand beside this file by theme. All run in one cluster, one after the other, each with the cluster whole at its begin and end.
"""

import argparse
import os
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import backups
import basics
import derived
import failures
import lightweight
import mistakes
import repair
import upgrade
from environment import Failure
from node import Workspace
from world import Nodes, World, connect, peers, wait_until

SCENARIOS = (*basics.SCENARIOS, *mistakes.SCENARIOS, *lightweight.SCENARIOS, *failures.SCENARIOS, *derived.SCENARIOS, *backups.SCENARIOS, *repair.SCENARIOS)


def run(nodes, scenarios):
    for at in range(len(nodes.all)):
        print(f"node {at + 1} was ready in {nodes.start(at):.1f} s", flush=True)
    for address in nodes.addresses:
        others = {other for other in nodes.addresses if other != address}
        wait_until(lambda a=address, o=others: peers(a) == o, f"{address} knows {others}")
    with connect(nodes.addresses[:1]) as cluster:
        world = World(nodes, cluster)
        for name, scenario in scenarios:
            world.is_whole()
            begun = time.monotonic()
            said = scenario(world)
            print(f"{name}: ok, {time.monotonic() - begun:.1f} s{', ' + said if said else ''}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--torc", required=True, help="the binary")
    parser.add_argument("--address", default=os.environ.get("TEST_CLUSTER_ADDRESS", "127.0.5.11"), help="of the first node")
    parser.add_argument("--nodes", type=int, default=3, help="how many (3)")
    parser.add_argument("--old", help="an earlier version's binary: the nodes begin with it, and are upgraded one after the other before all else")
    names = [name for name, _ in SCENARIOS]
    parser.add_argument("scenario", nargs="*", help="all when none is named: " + ", ".join(names))
    options = parser.parse_args()
    scenarios = [one for one in SCENARIOS if not options.scenario or one[0] in options.scenario]
    unknown = [name for name in options.scenario if name not in names]
    if options.nodes < 3:
        parser.error("there must be three nodes at least")
    if unknown:
        parser.error(f"there is no scenario {unknown[0]!r}; there are {', '.join(names)}")
    begun = time.monotonic()
    with Workspace("cluster") as folder:
        nodes = Nodes(options.torc, folder, options.address, options.nodes, options.old)
        try:
            run(nodes, [*(upgrade.SCENARIOS if options.old else ()), *scenarios])
        except Exception:
            for node in nodes.all:
                if os.path.exists(node.log):
                    print(f"--- {node.host}\n{node.log_tail()}")
            raise
        finally:
            nodes.end()
        print(f"cluster: ok, {time.monotonic() - begun:.0f} s")


if __name__ == "__main__":
    try:
        main()
    except Failure as failure:
        sys.exit(f"cluster: {failure}")
