"""Nodes that die, stop answering, are restarted one after the other, or lose their power all at once, under load."""

import signal
import time

from world import Load, check


def kill_and_restart(world):
    """One node is killed: nothing fails, nothing is lost."""
    with Load(world.session) as load:
        time.sleep(2)
        world.nodes.all[2].kill()
        time.sleep(6)
        world.nodes.start(2)
        world.sees(2)
        time.sleep(2)
    return load.verify("kill -9")


def pause(world):
    """One node stops answering for a while."""
    with Load(world.session) as load:
        time.sleep(1)
        world.nodes.all[1].process.send_signal(signal.SIGSTOP)
        time.sleep(8)
        world.nodes.all[1].process.send_signal(signal.SIGCONT)
        time.sleep(2)
    # What the stopped node coordinated ran into the client's patience; that is no loss.
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
