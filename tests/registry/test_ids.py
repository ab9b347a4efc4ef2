from registry.clock import fabric_offset, is_expired
from registry.ids import account_id, fabric_name, is_account_of, key_id, replica_id, request_id
from registry.text import is_id


def test_ids_are_identifiers_and_follow_from_the_key():
    name = key_id(b"k" * 32)
    assert is_id(name)
    assert len(name) == 24
    assert name == key_id(b"k" * 32) != key_id(b"j" * 32)
    assert replica_id(name, "e0") == f"{name}/e0"
    assert is_id(fabric_name(b"f" * 32))


def test_request_ids_sort_by_time_and_have_ulid_shape():
    early, late = request_id(1000, (1 << 90) - 1), request_id(1001, 0)
    assert len(early) == len(late) == 26
    assert early < late


def test_the_id_of_an_api_key_tells_which_operator_named_it():
    name = account_id(b"o" * 32, b"12345678")
    assert is_id(name)
    assert len(name) == 26
    assert is_account_of(name, b"o" * 32)
    assert not is_account_of(name, b"p" * 32)
    for other in ("k_1", "k_", account_id(b"p" * 32, b"12345678"), name[:-1], name + "a"):
        assert not is_account_of(other, b"o" * 32)


def test_the_fabric_clock_follows_the_median_hub():
    assert fabric_offset([]) == 0.0
    assert fabric_offset([-1.0, 100.0, 2.0]) == 2.0
    assert not is_expired(1000.0, 1100.0)
    assert is_expired(1000.0, 1121.0)
