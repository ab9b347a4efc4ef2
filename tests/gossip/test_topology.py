from collections import Counter
from hashlib import blake2b
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossip.topology import (
    LAST_RETRY_S,
    LEAF_HUBS,
    MAX_INGRESSES,
    MESH_HUBS,
    SPARSE_HUBS,
    Address,
    keeps,
    redial_s,
    targets,
)


def key(number: int) -> bytes:
    return blake2b(number.to_bytes(4, "big"), digest_size=32).digest()


def hubs(count: int, *, ingress: bool = False) -> list[Address]:
    return [Address(key(number), (f"ws://h{number}:1",), ingress) for number in range(count)]


LEAVES = [key(number) for number in range(10_000, 12_000)]


def chosen(me: bytes, known: list[Address]) -> set[bytes]:
    return {address.key for address in targets(me, False, known)}


def test_leaves_spread_evenly_over_five_hubs():
    links = Counter(hub for leaf in LEAVES for hub in chosen(leaf, hubs(5)))
    fair = len(LEAVES) * LEAF_HUBS / 5
    assert len(links) == 5
    assert all(0.7 * fair <= count <= 1.3 * fair for count in links.values())


def test_when_a_hub_goes_only_its_own_leaves_move_and_only_that_one_link():
    before, after = hubs(6), hubs(6)[:-1]
    gone = before[-1].key
    for leaf in LEAVES[:300]:
        held, holds = chosen(leaf, before), chosen(leaf, after)
        assert held - {gone} <= holds
        assert (held == holds) is (gone not in held)


def test_the_leaves_of_a_lost_hub_spread_over_all_the_others():
    before, gone = hubs(6), hubs(6)[-1].key
    moved = Counter(
        hub
        for leaf in LEAVES
        for hub in chosen(leaf, before[:-1]) - chosen(leaf, before)
        if gone in chosen(leaf, before)
    )
    fair = sum(moved.values()) / 5
    assert all(0.7 * fair <= moved[hub.key] <= 1.3 * fair for hub in before[:-1])


def test_the_order_in_which_addresses_are_known_does_not_matter():
    known = hubs(30)
    shuffled = Random(1).sample(known, len(known))
    assert targets(key(99), False, known) == targets(key(99), False, shuffled)


def test_a_leaf_takes_every_ingress_up_to_eight_beside_its_hubs():
    known = hubs(20, ingress=True)
    assert len(targets(key(99), False, known)) == LEAF_HUBS + MAX_INGRESSES
    assert len(targets(key(99), False, known[:5])) == 5


def test_a_leaf_takes_no_relay_beyond_its_hubs():
    assert len(targets(key(99), False, hubs(20))) == LEAF_HUBS


@pytest.mark.parametrize("count", [2, 5, MESH_HUBS])
def test_hubs_take_each_other_while_they_are_few(count):
    known = hubs(count)
    for hub in known:
        assert {address.key for address in targets(hub.key, True, known)} == {each.key for each in known} - {hub.key}


def test_beyond_the_mesh_each_hub_takes_eight_and_all_stay_connected():
    known = hubs(MESH_HUBS + 14)
    edges = [(hub.key, target.key) for hub in known for target in targets(hub.key, True, known)]
    assert Counter(me for me, _ in edges) == dict.fromkeys((hub.key for hub in known), SPARSE_HUBS)
    reached, frontier = {known[0].key}, {known[0].key}
    while frontier:
        ends = {b if a in frontier else a for a, b in edges if a in frontier or b in frontier}
        frontier = ends - reached
        reached |= ends
    assert len(reached) == len(known)


@pytest.mark.parametrize("is_hub", [True, False])
@pytest.mark.parametrize("count", [1, 4, 40])
def test_a_node_is_never_its_own_target(is_hub, count):
    for hub in hubs(count, ingress=True):
        assert hub.key not in {address.key for address in targets(hub.key, is_hub, hubs(count, ingress=True))}


def test_a_node_without_an_address_is_no_target():
    assert not targets(key(99), False, [Address(key(1), ())])


@given(st.integers(0, 10_000), st.randoms(use_true_random=False))
def test_a_redial_waits_at_most_the_longest_pause_with_its_jitter(attempt, rng):
    assert 0.0 <= redial_s(attempt, rng) <= 1.5 * LAST_RETRY_S


def test_the_first_dial_waits_for_nothing_and_the_next_ones_double():
    class Middle(Random):
        def uniform(self, a, b):
            return (a + b) / 2

    waits = [redial_s(attempt, Middle()) for attempt in range(9)]
    assert waits == [0.0, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 15.0]


def test_no_two_nodes_redial_in_step():
    rng = Random(7)
    assert len({redial_s(5, rng) for _ in range(100)}) == 100


@given(st.binary(min_size=32, max_size=32), st.binary(min_size=32, max_size=32))
def test_of_two_links_both_ends_keep_the_same(one, other):
    assert keeps(one, other) is not keeps(other, one) or one == other


def test_a_link_dialled_again_replaces_the_one_of_the_same_dialler():
    assert keeps(key(1), key(1))


def test_anchors_are_always_among_the_targets_whatever_keys_others_made():
    anchor = Address(b"a" * 32, ("ws://a:1",), ingress=True, is_anchor=True)
    crowd = [Address(bytes([n]) * 32, ("ws://x:1",), ingress=True) for n in range(1, 90)]
    for leaf in (bytes([n]) * 32 for n in range(100, 140)):
        assert anchor in targets(leaf, False, [*crowd, anchor])
