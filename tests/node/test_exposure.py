"""Whether a key may travel as it came, and who a client is behind proxies."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.config import DoorConfig
from node.door import exposure_of
from node.ingress.edge import EdgeRefused
from node.ingress.exposure import (
    Exposure,
    exposure_refusal,
    is_everywhere,
    is_loopback,
    networks,
    source_of,
)
from registry.errors import TelaError

PROXIES = networks(("10.0.0.0/8", "fd00::/8"))
FAR, NEAR, PROXY = "192.0.2.7", "127.0.0.1", "10.1.2.3"


def scope(client, *headers, scheme="http"):
    lowered = [(name.encode(), value.encode()) for name, value in headers]
    return {"scheme": scheme, "client": client and (client, 50_000), "headers": lowered}


def is_refused(exposure, given):
    try:
        exposure.must_be_private(given)
    except EdgeRefused as caught:
        return (caught.refusal.status, caught.refusal.code) == (403, "insecure_transport")
    return False


def proto(value):
    return ("x-forwarded-proto", value)


def forwarded(value):
    return ("x-forwarded-for", value)


# --- keys in the clear

GUARDED = Exposure("", is_guarded=True)
BEHIND = Exposure("", is_guarded=True, proxies=PROXIES)


@pytest.mark.parametrize("client", [NEAR, "127.3.2.1", "::1", "::ffff:127.0.0.1", None])
def test_a_key_from_this_host_may_come_in_the_clear(client):
    assert not is_refused(GUARDED, scope(client))


@pytest.mark.parametrize("client", [FAR, "::ffff:192.0.2.7", "2001:db8::1", "fe80::1%eth0", "nonsense", PROXY])
def test_a_key_from_another_host_may_not(client):
    assert is_refused(GUARDED, scope(client))
    assert not is_refused(GUARDED, scope(client, scheme="https"))
    assert not is_refused(Exposure("", is_guarded=False), scope(client))


@pytest.mark.parametrize(
    "headers",
    [(proto("https"),), (forwarded(NEAR),), (forwarded(NEAR), proto("https")), (("forwarded", "proto=https"),)],
)
def test_what_a_stranger_says_of_its_way_counts_for_nothing(headers):
    assert is_refused(BEHIND, scope(FAR, *headers))
    assert is_refused(GUARDED, scope(FAR, *headers))


@pytest.mark.parametrize("said", ["https", "HTTPS", " https ", "https, https"])
def test_a_proxy_that_was_asked_over_https_is_believed(said):
    assert not is_refused(BEHIND, scope(PROXY, forwarded(FAR), proto(said)))
    assert not is_refused(BEHIND, scope(f"::ffff:{PROXY}", forwarded(FAR), proto(said)))


@pytest.mark.parametrize(
    "headers",
    [
        (),
        (forwarded(FAR),),
        (forwarded(FAR), proto("http")),
        (forwarded(FAR), proto("https, http")),
        (forwarded(FAR), proto("https"), proto("http")),
        (forwarded(NEAR), proto("http")),
        (forwarded(FAR), proto("")),
    ],
)
def test_a_proxy_that_does_not_say_https_on_every_hop_is_not(headers):
    assert is_refused(BEHIND, scope(PROXY, *headers))


@pytest.mark.parametrize("peer", [NEAR, None])
def test_a_proxy_on_this_host_is_told_from_its_users_by_what_it_says(peer):
    local = Exposure("", is_guarded=True, proxies=networks(("127.0.0.1",)))
    assert not is_refused(local, scope(peer))
    assert not is_refused(local, scope(peer, forwarded(FAR), proto("https")))
    assert is_refused(local, scope(peer, forwarded(FAR), proto("http")))
    assert is_refused(local, scope(peer, forwarded(FAR)))


# --- who it is


@pytest.mark.parametrize(
    ("given", "client"),
    [
        (scope(FAR), FAR),
        (scope(FAR, forwarded("203.0.113.9")), FAR),
        (scope(PROXY), PROXY),
        (scope(PROXY, forwarded(FAR)), FAR),
        (scope(PROXY, forwarded(f"{NEAR}, {FAR}")), FAR),
        (scope(PROXY, forwarded(f"{FAR}, 10.9.9.9")), FAR),
        (scope(PROXY, forwarded("10.5.5.5, 10.9.9.9")), "10.5.5.5"),
        (scope(PROXY, forwarded(f"{FAR}:4711")), FAR),
        (scope(PROXY, forwarded("[2001:db8::5]:4711")), "2001:db8::5"),
        (scope(PROXY, forwarded("203.0.113.9"), forwarded(FAR)), FAR),
        (scope(PROXY, forwarded(f"{FAR}, unknown")), "unknown"),
        (scope(PROXY, forwarded(" , ")), PROXY),
        (scope(f"::ffff:{PROXY}", forwarded(FAR)), FAR),
        (scope("fd00::1", forwarded(FAR)), FAR),
        (scope(None), "local"),
        (scope(None, forwarded(FAR)), FAR),
    ],
)
def test_a_client_is_the_last_hop_that_is_no_proxy(given, client):
    assert BEHIND.client(given) == client


@given(st.lists(st.text(st.characters(codec="latin-1"), max_size=40), max_size=5), st.sampled_from([FAR, PROXY, None]))
def test_any_headers_give_some_client_and_nobody_far_becomes_near(values, peer):
    made = {"scheme": "http", "client": peer and (peer, 1), "headers": [
        (b"x-forwarded-for", value.encode("latin-1")) for value in values
    ]}  # fmt: skip
    assert BEHIND.client(made)
    if peer == FAR:
        assert BEHIND.client(made) == FAR
        assert is_refused(BEHIND, made)


@pytest.mark.parametrize(
    ("client", "source"),
    [(FAR, FAR), ("2001:db8::1", "2001:db8::/64"), ("local", "local"), ("unknown", "unknown")],
)
def test_a_source_is_an_address_or_an_ipv6_network(client, source):
    assert source_of(client) == source


# --- how a door may be opened


@pytest.mark.parametrize("address", ["127.0.0.1:7480", "localhost:7480", "[::1]:7480", "unix:/run/tela.sock"])
def test_a_door_on_this_host_needs_nothing(address):
    assert is_loopback(address)
    assert exposure_refusal(address, has_tls=False, proxies=(), insecure=False) is None
    assert not exposure_of(DoorConfig(address=address), "").is_guarded


@pytest.mark.parametrize("address", ["0.0.0.0:7480", "[::]:7480", "192.0.2.1:80", "login1:7480"])
def test_a_door_beyond_this_host_needs_a_word_of_how(address):
    refusal = exposure_refusal(address, has_tls=False, proxies=(), insecure=False)
    assert refusal is not None
    assert (refusal.code, address in refusal.message) == ("usage", True)
    assert all(flag in refusal.hint for flag in ("--tls-cert", "--behind-proxy", "--insecure-http"))
    assert exposure_refusal(address, has_tls=True, proxies=(), insecure=False) is None
    assert exposure_refusal(address, has_tls=False, proxies=("10.0.0.0/8",), insecure=False) is None
    assert exposure_refusal(address, has_tls=False, proxies=(), insecure=True) is None


@pytest.mark.parametrize("has_tls", [True, False])
@pytest.mark.parametrize("word", ["", "proxy.example.org", "10.0.0.0/33", "*", "10.0.0.0/8,10.1.0.0/16"])
def test_a_network_that_is_none_is_refused_by_name_even_with_tls(word, has_tls):
    with pytest.raises(TelaError) as caught:
        exposure_refusal("0.0.0.0:1", has_tls=has_tls, proxies=(word,), insecure=False)
    assert (caught.value.code, f"--behind-proxy {word}" in caught.value.message) == ("usage", True)


def test_a_network_may_be_one_address_or_have_host_bits():
    assert [str(each) for each in networks(("192.0.2.1", "10.1.2.3/8"))] == ["192.0.2.1/32", "10.0.0.0/8"]


@pytest.mark.parametrize(
    ("more", "is_guarded"),
    [
        ({}, True),
        ({"behind_proxy": ("10.0.0.0/8",)}, True),
        ({"insecure_http": True}, False),
        ({"tls_cert": "c", "tls_key": "k"}, False),
        ({"tls_cert": "c", "tls_key": "k", "behind_proxy": ("10.0.0.0/8",)}, False),
    ],
)
def test_a_door_looks_at_requests_unless_all_are_private_or_somebody_said_so(more, is_guarded):
    assert exposure_of(DoorConfig(address="0.0.0.0:1", **more), "").is_guarded == is_guarded


def test_a_door_on_this_host_looks_when_a_proxy_brings_others_to_it():
    assert exposure_of(DoorConfig(address="unix:/x", behind_proxy=("10.0.0.0/8",)), "").is_guarded


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://0.0.0.0:7480", ""),
        ("https://[::]:7480", ""),
        ("http://127.0.0.1:7480", "http://127.0.0.1:7480"),
        ("https://llm.example.org", "https://llm.example.org"),
        ("", ""),
    ],
)
def test_nobody_is_sent_to_an_address_that_means_every_one(url, shown):
    assert exposure_of(DoorConfig(address="127.0.0.1:1"), url).url == shown
    assert is_everywhere(url.partition("://")[2]) == (url != shown)
