"""The texts that start a node after a boot, read by what reads them where it is here."""

import shutil
import subprocess

import pytest

from node.platform.boot import kept, names_in, script, unit, with_line, without_line

WORDS = ["/opt/te la/bin/tela", "start", "--process", 'vllm serve "m" --port {port} 50% $HOME \\x', "--slot", "0"]
THEIRS = "# mine\nMAILTO=a@b\n\n0 3 * * * backup # nightly\n"


def test_a_unit_carries_every_word_as_it_is():
    text = unit("lab", WORDS, {"PATH": "/a b:/bin"}, home="/home/me", machine="h1")
    assert (
        'ExecStart="/opt/te la/bin/tela" "start" "--process" '
        '"vllm serve \\"m\\" --port {port} 50%% $$HOME \\\\x" "--slot" "0"' in text
    )
    assert 'Environment="PATH=/a b:/bin"' in text


def test_a_unit_gives_a_drain_its_time_and_tells_the_node_alone():
    text = unit("lab", WORDS, {}, home="/", machine="h1", drain_s=300)
    assert "TimeoutStopSec=360\n" in text
    assert "KillMode=mixed\n" in text


def test_a_unit_cannot_carry_the_end_of_a_line():
    with pytest.raises(ValueError, match="control character"):
        unit("lab", ["/bin/tela", "a\nExecStartPre=/bin/evil"], {}, home="/", machine="h1")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze here")
def test_systemd_finds_nothing_wrong_with_a_unit(tmp_path):
    path = tmp_path / "tela-lab.service"
    path.write_text(unit("lab", ["/bin/sh", "-c", "a % $b"], {"PATH": "/bin"}, home="/", machine="h1"))
    done = subprocess.run(["systemd-analyze", "--user", "verify", path], capture_output=True, text=True, check=False)
    assert "tela-lab" not in done.stderr, done.stderr


def test_a_script_runs_the_words_with_the_variables_in_the_directory(tmp_path):
    path = tmp_path / "lab.sh"
    words = ["/usr/bin/env", "sh", "-c", 'echo "$0|$1|$KEEP|$PWD"', *WORDS[3:5]]
    path.write_text(script(words, {"KEEP": "a 'b' $c"}, home=str(tmp_path)))
    done = subprocess.run(["sh", path], capture_output=True, text=True, check=True)
    assert done.stdout == f"{WORDS[3]}|--slot|a 'b' $c|{tmp_path}\n"


def test_a_crontab_keeps_the_lines_of_others():
    text = with_line(THEIRS, "lab", "/home/me/.config/tela/boot/lab.sh")
    assert text.startswith(THEIRS)
    assert text.endswith("@reboot /home/me/.config/tela/boot/lab.sh # made by tela service install: lab\n")
    assert without_line(text, "lab") == THEIRS


def test_a_line_is_replaced_and_one_whose_name_only_begins_so_is_not():
    text = with_line(with_line(THEIRS, "lab", "/old"), "lab-1", "/other")
    again = with_line(text, "lab", "/new")
    assert names_in(again) == ("lab-1", "lab")
    assert "/old" not in again


def test_cron_would_end_a_line_at_a_percent_sign():
    assert "@reboot '/a\\%b c.sh' #" in with_line("", "lab", "/a%b c.sh")


def test_no_secret_goes_along():
    env = {"PATH": "/bin", "TELA_HOME": "/s", "TELA_PASSPHRASE_FILE": "/p", "OPENAI_API_KEY": "k", "HF_HOME": "a\nb"}
    assert kept(env) == {"PATH": "/bin", "TELA_HOME": "/s"}
