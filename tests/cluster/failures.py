"""Nodes that die, stop answering, are restarted one after the other, or lose their power all at once, under load."""

import signal
import time

from world import Load, check, rest, wait_until


# Silence alone convicts after 18 s and more; an ended process is to be convicted in 2 s, of which a loaded machine may make some more.
CONVICTED_SECONDS_MAX = 8


def convicted(world, at):
    """Waits until all other nodes have convicted one whose process has just ended; the seconds until the last did."""
    gone, begun = world.nodes.addresses[at], time.monotonic()
    for address in (other for other in world.nodes.addresses if other != gone):
        wait_until(lambda a=address: gone not in rest(a, "/gossiper/endpoint/live"), f"{address} convicts {gone}", CONVICTED_SECONDS_MAX)
    return time.monotonic() - begun


def kill_and_restart(world):
    """One node is killed: nothing fails, nothing is lost, and the others notice at once."""
    with Load(world.session) as load:
        time.sleep(2)
        world.nodes.all[2].kill()
        seconds = convicted(world, 2)
        time.sleep(4)
        world.nodes.start(2)
        world.sees(2)
        time.sleep(2)
    return f"{load.verify('kill -9')}, convicted by all within {seconds:.1f} s"


def pause(world):
    """One node stops answering for a while."""
    with Load(world.session) as load:
        time.sleep(1)
        world.nodes.all[1].process.send_signal(signal.SIGSTOP)
        time.sleep(8)
        world.nodes.all[1].process.send_signal(signal.SIGCONT)
        time.sleep(2)
    # Requests that the stopped node coordinated ran into the client's patience; that is no loss.
    return load.verify("pause", failures_allowed=True)


def rolling_restart(world):
    """All nodes are restarted one after the other: nothing fails."""
    nodes = world.nodes
    with Load(world.session) as load:
        for at in range(len(nodes.all)):
            time.sleep(1)
            check(nodes.all[at].stop() == 0, f"node {at + 1} did not stop well:\n{nodes.all[at].log_tail()}")
            nodes.start(at)
            world.sees(at)
    return load.verify("rolling restart")


def power_off(world):
    """All nodes are killed at one moment and started again."""
    nodes = world.nodes
    with Load(world.session) as load:
        time.sleep(2)
        for node in nodes.all:
            node.process.send_signal(signal.SIGSTOP)
        for node in nodes.all:
            node.kill()
    for at in range(len(nodes.all)):
        nodes.start(at)
    for at in range(len(nodes.all)):
        world.sees(at)
    return load.verify("power off", failures_allowed=True)


SCENARIOS = (
    ("kill -9 and restart", kill_and_restart),
    ("pause", pause),
    ("rolling restart", rolling_restart),
    ("power off", power_off),
)
