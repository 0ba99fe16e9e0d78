"""Clients, files and statements that no well-meaning user would send: `hostile.py --torc BINARY [--long] [SCENARIO...]`.

Scenarios run one after the other against fresh nodes: one that serves everybody, one with TLS, one that asks for passwords. Meanwhile clients
that behave read and write, and the node is watched: it stays up, nothing panics, its memory stays within a bound, and the clients that behave
are served in time. With --long scenarios take ten times as many random cases.
"""

import argparse
import os
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import damage
import dynamodb
import encrypted
import logins
import messages
import ports
import statements
import values
from environment import Failure
from node import Workspace
from world import Encrypted, Logins, World

# The first node's; others are at addresses after it, and clients that behave come from one of those.
ADDRESS = os.environ.get("TEST_HOSTILE_ADDRESS", "127.0.5.31")
LONG = 10
SECONDS_MAX = 150

# Each kind of node with the modules whose scenarios run against it. `damage` has a node of its own: commit log and tables of others would
# have to be read again at each of its starts.
GROUPS = (
    (World, (ports, messages, dynamodb, values, statements)),
    (World, (damage,)),
    (Encrypted, (encrypted,)),
    (Logins, (logins,)),
)


def chosen(modules, wanted):
    """The scenarios of modules that are wanted: name, function, and whether it restarts the node."""
    scenarios = [scenario for module in modules for scenario in module.SCENARIOS]
    return [(name, run, name in damage.RESTARTING) for name, run in scenarios if not wanted or name in wanted]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--torc", required=True, help="the binary")
    parser.add_argument("--long", action="store_true", help="ten times as many random cases")
    names = [name for _, modules in GROUPS for name, _, _ in chosen(modules, ())]
    parser.add_argument("scenario", nargs="*", help="all when none is named: " + ", ".join(names))
    options = parser.parse_args()
    unknown = [name for name in options.scenario if name not in names]
    if unknown:
        parser.error(f"there is no scenario {unknown[0]!r}; there are {', '.join(names)}")
    begun = time.monotonic()
    start, last = ADDRESS.rsplit(".", 1)
    with Workspace("hostile") as folder:
        for at, (world, modules) in enumerate(GROUPS):
            scenarios = chosen(modules, options.scenario)
            if scenarios:
                host, source = f"{start}.{int(last) + 10 * at}", f"{start}.{int(last) + 8}"
                place = os.path.join(folder, f"{world.__name__.lower()}{at}")
                world(options.torc, place, host, source, LONG if options.long else 1).run(scenarios)
        took = time.monotonic() - begun
        limit = SECONDS_MAX * (LONG if options.long else 1)
        print(f"hostile: ok, {took:.0f} s{f' (more than the {limit} s that it should take)' if took > limit else ''}")


if __name__ == "__main__":
    try:
        main()
    except Failure as failure:
        sys.exit(f"hostile: {failure}")
