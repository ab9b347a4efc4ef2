"""What an account holds of a fabric."""

import json
import stat

import pytest

from node.config import HubAddress
from node.fabricdir import FabricDir, find, free_name, names
from registry.charter import found
from registry.errors import TelaError
from tests.confined import confined
from tests.people import FABRIC, FOUNDING, MEMBER, membership

RECORDS = (FOUNDING.charter, membership())
HUBS = (HubAddress(key=MEMBER.key, urls=("ws://hub:7481",)),)


def made(config, name="lab", **more):
    return FabricDir.create(config, name, RECORDS, HUBS, "https://llm.lab", member_seed=MEMBER.seed, **more)


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_what_was_given_is_found_again(tmp_path):
    made(tmp_path, operator_key=b"sealed")
    fabric = find(tmp_path, "lab")
    assert (fabric.name, fabric.fabric_id, fabric.records()) == ("lab", FABRIC, RECORDS)
    assert (fabric.member_seed(), fabric.operator_key()) == (MEMBER.seed, b"sealed")
    assert (fabric.hubs(), fabric.door) == (HUBS, "https://llm.lab")


def test_everything_is_private(tmp_path):
    fabric = made(tmp_path, operator_key=b"sealed")
    assert mode(tmp_path / "fabrics") == mode(fabric.path) == 0o700
    assert {mode(each) for each in fabric.path.iterdir()} == {0o600}


def test_what_was_not_given_is_absent(tmp_path):
    fabric = FabricDir.create(tmp_path, "lab", RECORDS)
    assert (fabric.member_seed(), fabric.operator_key(), fabric.hubs(), fabric.door) == (None, None, (), "")


def test_a_name_is_given_once(tmp_path):
    made(tmp_path)
    with pytest.raises(TelaError) as caught:
        FabricDir.create(tmp_path, "lab", ())
    assert caught.value.code == "fabric_exists"
    assert find(tmp_path, "lab").records() == RECORDS
    assert names(tmp_path) == ("lab",)


@pytest.mark.parametrize("name", ["", "..", "a/b", ".hidden", "a" * 65, "lab\n", "läb"])
def test_a_name_that_is_no_directory_is_refused(tmp_path, name):
    with pytest.raises(TelaError):
        FabricDir.create(tmp_path, name, ())
    assert list(tmp_path.iterdir()) == []


def test_a_free_name_is_numbered(tmp_path):
    assert free_name(tmp_path, "lab") == "lab"
    made(tmp_path)
    assert free_name(tmp_path, "lab") == "lab-2"
    made(tmp_path, "lab-2")
    assert free_name(tmp_path, "lab") == "lab-3"


def test_no_fabric_says_how_to_get_one(tmp_path):
    with pytest.raises(TelaError) as caught:
        find(tmp_path, None)
    assert caught.value.code == "no_fabric"
    assert all(word in caught.value.hint for word in ("tela init", "tela join", "tela demo"))


def test_the_only_fabric_needs_no_name_and_of_several_one_has_to_be_named(tmp_path):
    made(tmp_path)
    assert find(tmp_path, None).name == "lab"
    made(tmp_path, "other")
    with pytest.raises(TelaError) as caught:
        find(tmp_path, None)
    assert "lab, other" in caught.value.message
    assert "--fabric" in caught.value.hint
    assert "TELA_FABRIC" in caught.value.hint


def test_a_fabric_that_is_not_there_lists_those_that_are(tmp_path):
    made(tmp_path)
    with pytest.raises(TelaError) as caught:
        find(tmp_path, "lob")
    assert "lob" in caught.value.message
    assert "lab" in caught.value.hint
    with pytest.raises(TelaError, match="that name"):
        find(tmp_path, "../etc\x1b")


def test_what_is_half_made_or_no_fabric_is_not_named(tmp_path):
    made(tmp_path)
    (tmp_path / "fabrics/.new-1-aa").mkdir()
    (tmp_path / "fabrics/empty").mkdir()
    (tmp_path / "fabrics/notes.txt").write_text("")
    assert names(tmp_path) == ("lab",)
    assert names(tmp_path / "nothing") == ()


@pytest.mark.parametrize("file", ["member.key", "operator.key"])
def test_a_key_others_may_read_is_refused_with_the_command_that_closes_it(tmp_path, file):
    fabric = made(tmp_path, operator_key=b"sealed")
    (fabric.path / file).chmod(0o640)
    read = fabric.member_seed if file == "member.key" else fabric.operator_key
    with pytest.raises(TelaError) as caught:
        read()
    assert caught.value.hint == f"chmod 600 {fabric.path / file}"


def test_records_that_were_damaged_are_refused(tmp_path):
    fabric = made(tmp_path)
    path = fabric.path / "records"
    whole = path.read_bytes()
    for content in (whole[:-1], whole[:40] + b"!" + whole[41:], b"", b"junk"):
        path.write_bytes(content)
        with pytest.raises(TelaError, match="is broken") as caught:
            fabric.records()
        assert "join again" in caught.value.hint


def test_a_record_that_was_forged_is_refused(tmp_path):
    from node.recordfile import frames

    fabric = made(tmp_path)
    raw = bytearray(RECORDS[1].raw)
    raw[-1] ^= 1
    (fabric.path / "records").write_bytes(frames([bytes(raw)]))
    with pytest.raises(TelaError, match="signature"):
        fabric.records()


def test_without_a_founding_charter_there_is_no_fabric_id(tmp_path):
    fabric = FabricDir.create(tmp_path, "lab", [membership()])
    with pytest.raises(TelaError, match="no founding charter"):
        _ = fabric.fabric_id


@pytest.mark.parametrize(
    "listed",
    ["{", "{}", "[1]", '[{"key": "00"}]', '[{"key": "00", "urls": []}]', f'[{{"key": "{"0" * 64}", "urls": "x"}}]'],
)
def test_hubs_that_are_none_are_refused(tmp_path, listed):
    fabric = made(tmp_path)
    (fabric.path / "hubs.json").write_text(listed)
    with pytest.raises(TelaError, match=r"hubs\.json is broken"):
        fabric.hubs()


def test_hubs_are_readable_for_people(tmp_path):
    fabric = made(tmp_path)
    assert json.loads((fabric.path / "hubs.json").read_text()) == [{"key": MEMBER.key.hex(), "urls": ["ws://hub:7481"]}]


def test_each_part_can_be_put_anew(tmp_path):
    fabric = FabricDir.create(tmp_path, "lab", ())
    fabric.save_records(RECORDS)
    fabric.save_member_seed(MEMBER.seed)
    fabric.save_operator_key(b"sealed")
    fabric.save_hubs(HUBS)
    fabric.save_door("https://llm.lab")
    assert (fabric.records(), fabric.member_seed(), fabric.operator_key()) == (RECORDS, MEMBER.seed, b"sealed")
    assert (fabric.hubs(), fabric.door) == (HUBS, "https://llm.lab")


def test_a_full_disk_leaves_nothing_half_made(tmp_path):
    said = confined(
        """
        import resource, sys
        from pathlib import Path
        from node.fabricdir import FabricDir
        from registry.errors import TelaError
        from tests.people import FOUNDING
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
        try:
            FabricDir.create(Path(sys.argv[1]), "lab", [FOUNDING.charter])
        except TelaError as error:
            print(error.code, error.hint)
        """,
        tmp_path,
    )
    assert said.startswith("state_unusable")
    assert list((tmp_path / "fabrics").iterdir()) == []


# --- its id, where looks find it


def test_the_id_is_in_a_file_of_its_own(tmp_path):
    assert (made(tmp_path).path / "id").read_text() == f"{FABRIC.hex()}\n"


def test_a_directory_of_an_older_release_gets_it_at_the_first_need(tmp_path):
    fabric = made(tmp_path)
    (fabric.path / "id").unlink()
    assert fabric.fabric_hex == FABRIC.hex()
    assert (fabric.path / "id").exists()


@pytest.mark.parametrize("text", ["", "nonsense", "AB" * 32, "ab" * 31])
def test_a_file_that_is_no_id_is_written_anew(tmp_path, text):
    fabric = made(tmp_path)
    (fabric.path / "id").write_text(text)
    assert fabric.fabric_hex == FABRIC.hex()
    assert (fabric.path / "id").read_text() == f"{FABRIC.hex()}\n"


def test_the_id_follows_the_records(tmp_path):
    fabric = made(tmp_path)
    other = found("other", "eve", MEMBER.key, MEMBER.sign)
    fabric.save_records([other.charter])
    assert fabric.fabric_hex == other.fabric_id.hex()


def test_the_id_is_read_without_decoding_a_record(tmp_path):
    fabric = made(tmp_path)
    (fabric.path / "records").unlink()
    assert fabric.fabric_hex == FABRIC.hex()


def test_without_a_founding_charter_there_is_no_id(tmp_path):
    fabric = FabricDir.create(tmp_path, "lab", [membership()])
    with pytest.raises(TelaError) as caught:
        _ = fabric.fabric_hex
    assert caught.value.code == "bad_fabric"
    assert not (fabric.path / "id").exists()
