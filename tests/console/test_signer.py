"""Who signs: which key is unlocked by what, and what is said when it is not."""

import os

import pytest

from console import signer as module
from console.recovery import recovery_text
from console.sealed import encode, held_by_agent, seal
from console.signer import member_signer, operator_signer, read_passphrase, recovery_signer
from registry.errors import TelaError
from registry.record import DOMAIN, Draft
from registry.record import seal as seal_record
from tests.console.founded import ENTROPY, account, fabric
from tests.console.test_agent_keys import add, needs_ssh, ssh_agent
from tests.people import MEMBER, OPERATOR, Person

__all__ = ["account"]


def refused(what, *args):
    with pytest.raises(TelaError) as caught:
        what(*args)
    return caught.value


@pytest.fixture
def sealed(account):
    """A fabric whose operator key has the passphrase `open sesame`."""
    held = fabric(account)
    held.save_operator_key(encode(seal("ada", OPERATOR.seed, b"open sesame", ENTROPY)))
    return held


def secret(path, text, mode=0o600):
    path.write_text(text)
    path.chmod(mode)
    return str(path)


def test_a_passphrase_file_unlocks_the_key(sealed, tmp_path):
    signer = operator_signer(sealed, secret(tmp_path / "pass", "open sesame\n"))
    assert (signer.key, signer.name) == (OPERATOR.key, "ada")
    assert signer.sign(DOMAIN) == OPERATOR.sign(DOMAIN)


def test_the_environment_may_name_the_file(sealed, tmp_path, monkeypatch):
    monkeypatch.setenv("TELA_PASSPHRASE_FILE", secret(tmp_path / "pass", "open sesame\r\nmore"))
    assert operator_signer(sealed, None).key == OPERATOR.key


def test_a_pipe_unlocks_the_key(sealed):
    read, write = os.pipe()
    os.write(write, b"open sesame\n")
    os.close(write)
    try:
        assert operator_signer(sealed, f"/dev/fd/{read}").key == OPERATOR.key
    finally:
        os.close(read)


def test_a_mounted_secret_is_a_link_and_is_followed(tmp_path):
    secret(tmp_path / "data", "open sesame")
    (tmp_path / "pass").symlink_to(tmp_path / "data")
    assert read_passphrase(str(tmp_path / "pass")) == b"open sesame"


def test_a_passphrase_file_that_others_may_read_is_refused(sealed, tmp_path):
    error = refused(operator_signer, sealed, secret(tmp_path / "pass", "open sesame", 0o644))
    assert error.code == "key_exposed"
    assert "chmod 600" in error.hint


@pytest.mark.parametrize("text", ["", "\nopen sesame", "x" * 2_000])
def test_a_file_whose_first_line_is_no_passphrase_is_refused(tmp_path, text):
    assert refused(read_passphrase, secret(tmp_path / "pass", text)).code == "bad_passphrase"


def test_a_file_that_is_not_there_is_named(tmp_path):
    assert str(tmp_path / "none") in refused(read_passphrase, str(tmp_path / "none")).message


def test_a_wrong_passphrase_in_a_file_is_not_asked_again(sealed, tmp_path):
    assert refused(operator_signer, sealed, secret(tmp_path / "pass", "sesame")).code == "wrong_passphrase"


def test_without_a_terminal_it_says_how_to_give_one(sealed):
    error = refused(operator_signer, sealed, None)
    assert error.code == "usage"
    assert "--passphrase-file" in error.hint


def test_the_terminal_is_asked_until_it_is_right(sealed, monkeypatch, capsys):
    typed = ["wrong", "open sesame"]
    monkeypatch.setattr(module.sys.stdin, "isatty", lambda: True)
    monkeypatch.setattr(module, "getpass", lambda prompt, stream: typed.pop(0))
    assert operator_signer(sealed, None).key == OPERATOR.key
    assert "that is not it" in capsys.readouterr().err


def test_the_terminal_is_not_asked_for_ever(sealed, monkeypatch):
    asked = []
    monkeypatch.setattr(module.sys.stdin, "isatty", lambda: True)
    monkeypatch.setattr(module, "getpass", lambda prompt, stream: asked.append(prompt) or "wrong")
    assert refused(operator_signer, sealed, None).code == "wrong_passphrase"
    assert len(asked) == 3


def test_whoever_has_no_operator_key_is_told_how_to_get_one(account):
    error = refused(operator_signer, fabric(account, operator=None), None)
    assert error.code == "no_operator_key"
    assert "tela operators request" in error.hint


def test_a_key_file_that_others_may_read_is_refused(account):
    held = fabric(account)
    held.operator_path.chmod(0o640)
    assert refused(operator_signer, held, None).code == "key_exposed"


@needs_ssh
def test_a_key_in_a_real_agent_writes_a_record_that_verifies(account, monkeypatch):
    held, runtime = fabric(account), account
    with ssh_agent(module.Path(os.environ["XDG_RUNTIME_DIR"])) as path:
        monkeypatch.setenv("SSH_AUTH_SOCK", str(path))
        held.save_operator_key(encode(held_by_agent("ada", Person(3).key)))
        assert refused(operator_signer, held, None).code == "no_agent_key"
        add(path, runtime, "ada")
        (key,) = module.agent_of(os.environ).identities()
        held.save_operator_key(encode(held_by_agent("ada", key.key)))
        signer = operator_signer(held, None)
        record = seal_record(Draft("act", "drain/x", b"{}"), signer.key, signer.sign)
    assert record.key.owner == key.key


def test_a_member_signs_with_the_own_key():
    signer = member_signer(MEMBER.seed)
    assert (signer.key, signer.name) == (MEMBER.key, MEMBER.id)


def test_the_recovery_key_signs_as_it_was_written_down():
    assert recovery_signer(recovery_text(Person(9).seed)).key == Person(9).key
