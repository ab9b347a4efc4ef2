"""Which settings of a node go together."""

import pytest

from node.flags import check, is_hub, said, several_of, text_of
from node.settings import resolve
from registry.errors import TelaError

WORKER, HUB, DOOR = ("worker",), ("relay",), ("ingress",)


def checked(roles=DOOR, *, engines=False, env=None, file=None, **flags):
    settings = resolve(flags, env or {}, file or {})
    check(settings, roles, has_engines=engines)
    return settings


def refused(*words, roles=DOOR, **more):
    """It is used wrongly, the words are in what is said, and there is a remedy."""
    with pytest.raises(TelaError) as caught:
        checked(roles, **more)
    assert caught.value.code == "usage"
    assert caught.value.hint
    for word in words:
        assert word in caught.value.message
    assert caught.value.message.isprintable()


@pytest.mark.parametrize(
    "flags", [{}, {"http": "127.0.0.1:0"}, {"http": "[::1]:80"}, {"http": "unix:/run/t.sock"}, {"http": "localhost:1"}]
)
def test_a_door_on_this_host_alone_may_be_plain(flags):
    assert checked(**flags)


@pytest.mark.parametrize(
    "way", [{"tls_cert": "c.pem", "tls_key": "k.pem"}, {"behind_proxy": ("10.0.0.0/8",)}, {"insecure_http": True}]
)
def test_a_door_beyond_this_host_says_what_keeps_its_keys(way):
    assert checked(http="0.0.0.0:443", **way)


def test_a_door_beyond_this_host_without_that_is_refused():
    refused("--http 0.0.0.0:443", http="0.0.0.0:443")


@pytest.mark.parametrize(
    "address", ["here", ":80", "h:", "h:99999", "::1:80", "[::1", "[x]:80", "unix:rel", "h:\u0663"]
)
def test_what_is_no_address_is_refused(address):
    refused("--http", http=address)
    refused("--listen", listen=address.removeprefix("unix:"), roles=HUB)


def test_door_and_links_need_two_ports():
    refused(
        "--http 127.0.0.1:7 is where --listen is", http="127.0.0.1:7", listen="127.0.0.1:7", roles=("ingress", "relay")
    )
    assert checked(http="127.0.0.1:0", listen="127.0.0.1:0", roles=("ingress", "relay"))


@pytest.mark.parametrize("flags", [{"tls_cert": "c.pem"}, {"tls_key": "k.pem"}])
def test_a_certificate_and_its_key_come_together(flags):
    refused("--tls-cert", "--tls-key", **flags)


def test_a_proxys_network_is_a_network():
    refused("--behind-proxy", "10.0.0/8x", behind_proxy=("10.0.0/8x",))


@pytest.mark.parametrize(
    "url", ["llm.example.org", "ws://h", "http://", "http://h/?a=b", "https://\u00fc", "http://a@b", "http://h:x"]
)
def test_what_is_no_url_of_a_door_is_refused(url):
    refused("--url", url=url)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("http", "127.0.0.1:1"),
        ("url", "http://h"),
        ("tls_cert", "c"),
        ("behind_proxy", ("10.0.0.0/8",)),
        ("insecure_http", True),
    ],
)
def test_a_flag_of_the_door_without_a_door_is_refused_and_elsewhere_left_out(name, value):
    refused("--" + name.replace("_", "-"), "without the role ingress", roles=HUB, **{name: value})
    assert checked(HUB, file={name: list(value) if isinstance(value, tuple) else value})


def test_links_need_a_role_that_others_link_to():
    refused("--listen 0.0.0.0:1", "observer", roles=("observer",), listen="0.0.0.0:1")
    settings = checked(("observer",), file={"listen": "0.0.0.0:1"})
    assert not is_hub(settings, ("observer",))
    assert is_hub(settings, ("relay",))
    assert is_hub(settings, ("ingress",))


def test_an_address_for_others_needs_one_of_our_own():
    refused("--advertise without --listen", roles=HUB, advertise=("ws://h:1",))
    assert checked(HUB, listen="0.0.0.0:1", advertise=("ws://h:1", "wss://h"))


@pytest.mark.parametrize("url", ["h:7481", "http://h:7481", "ws://", "ws://h:x", "ws://\x1b"])
def test_what_is_no_url_of_links_is_refused(url):
    refused("--advertise", roles=HUB, listen="0.0.0.0:1", advertise=(url,))


@pytest.mark.parametrize("whom", ["fabric", "project:chem", "user:kim"])
def test_engines_may_be_kept_for_some(whom):
    assert checked(WORKER, engines=True, serve_to=(whom,))


@pytest.mark.parametrize("whom", ["kim", "project:", "team:x", "user:two words", "fabric:x", ""])
def test_whom_nobody_is_is_refused(whom):
    refused("--serve-to", roles=WORKER, engines=True, serve_to=(whom,))


def test_nothing_can_be_kept_for_some_where_nothing_is_served():
    refused("--serve-to without an engine", serve_to=("user:kim",))


@pytest.mark.parametrize("host", ["../x", "a b", "-x", "h@lab", "x" * 64, "\u00fc"])
def test_a_host_has_a_name_that_may_stand_in_a_path(host):
    refused("--host", host=host)


def test_it_is_said_where_a_wrong_value_came_from():
    refused("TELA_LISTEN here", roles=HUB, env={"TELA_LISTEN": "here"})
    refused("listen in config.toml here", roles=HUB, file={"listen": "here"})
    assert said(resolve({}, {}, {}), "drain_s") == "--drain-s"


def test_settings_are_read_as_text_or_as_several():
    settings = resolve({"listen": "a:1", "advertise": ("b", "c")}, {}, {})
    assert (text_of(settings, "listen"), text_of(settings, "url")) == ("a:1", "")
    assert (several_of(settings, "advertise"), several_of(settings, "listen"), several_of(settings, "url")) == (
        ("b", "c"),
        ("a:1",),
        (),
    )
