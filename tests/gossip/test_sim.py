"""The gossip cores under bad weather, in virtual time. SIM_SEEDS=200 runs more seeds."""

import os

import pytest

from registry.lifecycle import Rank
from registry.views import ModelState
from tests.sim import Sim, Weather

SEEDS = range(int(os.environ.get("SIM_SEEDS", "5")))
SEEN_WITHIN_S = 2.0  # a closed link or a dead engine


def settled(sim):
    assert sim.until(sim.agreed, within=30.0) is not None
    return sim


def routable(model="m", count=1):
    return lambda view: len(view.routable.get(model, ())) == count


def suspect(node):
    return lambda view: view.nodes[node.id].suspect


def test_two_runs_of_one_seed_are_the_same():
    def history(seed):
        sim = Sim(hubs=2, leaves=5, seed=seed, weather=Weather(loss=0.1, jitter_s=0.01))
        sim.run(20.0)
        return sim.sent, sim.sent_b, [node.roots() for node in sim.nodes]

    assert history(3) == history(3)
    assert history(3)[0] != history(4)[0]


@pytest.mark.parametrize("seed", SEEDS)
def test_loss_repetition_and_reordering_never_leave_two_replicas_different(seed):
    sim = Sim(hubs=3, leaves=12, seed=seed, weather=Weather(loss=0.3, repeat=0.2, jitter_s=0.5))
    for at, node in enumerate(sim.nodes[3:]):
        sim.run(0.2)
        sim.serve(node, f"m{at % 4}")
        sim.serve(node, f"m{at % 4}", rank=Rank.DOWN)
    sim.weather = Weather()
    took = sim.until(sim.agreed, within=30.0)
    assert took is not None
    assert took <= 8.0  # two silent pings and a repair
    assert len(sim.nodes[0].view().replicas) == 12


@pytest.mark.parametrize("seed", SEEDS)
def test_a_closed_link_is_seen_by_everyone_within_two_seconds(seed):
    sim = settled(Sim(hubs=3, leaves=10, seed=seed))
    victim = sim.nodes[7]
    sim.serve(victim)
    assert sim.until(lambda: sim.all_see(routable()), within=2.0) is not None
    sim.crash(victim)
    assert sim.until(lambda: sim.all_see(suspect(victim)), within=SEEN_WITHIN_S) is not None
    assert sim.all_see(routable(count=0))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_dead_engine_is_seen_by_everyone_within_two_seconds_despite_loss(seed):
    sim = settled(Sim(hubs=3, leaves=10, seed=seed, weather=Weather(loss=0.02)))
    victim = sim.nodes[9]
    sim.serve(victim)
    assert sim.until(lambda: sim.all_see(routable()), within=10.0) is not None
    sim.serve(victim, rank=Rank.DOWN)
    down = lambda view: view.models["m"].state is ModelState.DOWN  # noqa: E731
    assert sim.until(lambda: sim.all_see(down), within=SEEN_WITHIN_S + 4.0) is not None


def test_a_frozen_node_is_suspect_after_its_links_fall_silent():
    sim = settled(Sim(hubs=2, leaves=4))
    sim.freeze(sim.nodes[4])
    took = sim.until(lambda: sim.all_see(suspect(sim.nodes[4])), within=20.0)
    assert took is not None
    assert 4.0 <= took <= 9.0


def test_a_leaf_that_lost_one_of_two_hubs_is_not_suspect():
    sim = settled(Sim(hubs=2, leaves=4))
    leaf = sim.nodes[3]
    sim.part([leaf], [sim.nodes[0]])
    sim.run(5.0)
    assert not sim.nodes[1].view().nodes[leaf.id].suspect
    assert not sim.nodes[0].view().nodes[leaf.id].suspect


def test_a_crashed_hub_is_suspect_and_its_leaves_are_not():
    sim = settled(Sim(hubs=3, leaves=6))
    hub = sim.nodes[0]
    sim.crash(hub)
    assert sim.until(lambda: sim.all_see(suspect(hub)), within=SEEN_WITHIN_S) is not None
    sim.run(5.0)
    assert sim.all_see(lambda view: {row.id for row in view.nodes.values() if row.suspect} == {hub.id})


@pytest.mark.parametrize("seed", SEEDS)
def test_a_partition_heals_to_one_state_and_nobody_stays_suspect(seed):
    sim = settled(Sim(hubs=2, leaves=8, seed=seed, weather=Weather(loss=0.05)))
    left = [sim.nodes[0], *sim.nodes[2:6]]
    right = [sim.nodes[1], *sim.nodes[6:]]
    sim.part(left, right)
    sim.run(5.0)
    sim.serve(left[1], "left")
    sim.serve(right[1], "right")
    sim.run(60.0)
    sim.heal()
    calm = lambda view: not any(row.suspect for row in view.nodes.values()) and len(view.replicas) == 2  # noqa: E731
    took = sim.until(lambda: sim.agreed() and sim.all_see(calm), within=60.0)
    assert took is not None
    assert took <= 30.0  # the longest pause before dialling again, and two pings


@pytest.mark.parametrize("seed", SEEDS)
def test_a_new_run_replaces_the_crashed_one_and_its_old_engine_never_returns(seed):
    sim = settled(Sim(hubs=2, leaves=4, seed=seed))
    sim.serve(sim.nodes[3])
    sim.run(1.0)
    sim.crash(sim.nodes[3])
    sim.run(10.0)
    reborn = sim.restart(3)
    settled(sim)
    assert sim.all_see(lambda view: view.nodes[reborn.id].run == 2 and not view.nodes[reborn.id].suspect)
    assert sim.all_see(routable(count=0))
    sim.run(120.0)
    assert sim.all_see(routable(count=0))


def test_clocks_a_decade_apart_change_nothing():
    def states(skew_s):
        sim = Sim(hubs=2, leaves=4, seed=1)
        for at, node in enumerate(sim.nodes):
            node.skew_s = skew_s * (-1) ** at
        sim.serve(sim.nodes[4])
        settled(sim)
        sim.crash(sim.nodes[5])
        sim.run(10.0)
        return sim.nodes[0].view().nodes.keys(), sim.nodes[0].view().nodes[sim.nodes[5].id].suspect

    assert states(0.0) == states(315_360_000.0)


def test_an_idle_fabric_costs_each_link_two_pings_per_round():
    sim = settled(Sim(hubs=3, leaves=12))
    sim.run(30.0)
    links = sum(len(node.links) for node in sim.nodes)
    before, before_b = sim.sent, sim.sent_b
    sim.run(60.0)
    assert sim.sent - before <= links * 31
    assert (sim.sent_b - before_b) / (links * 60) < 30  # bytes a second on each end of a link
