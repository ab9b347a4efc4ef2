"""Settings: which source wins, and what is refused."""

import pytest

from node.settings import SETTINGS, read_file, resolve
from registry.errors import TelaError


def refused(**sources):
    with pytest.raises(TelaError) as caught:
        resolve(sources.get("flags", {}), sources.get("env", {}), sources.get("file", {}))
    assert caught.value.code == "config"
    return f"{caught.value.message} | {caught.value.hint}"


def test_a_flag_wins_over_the_environment_over_the_file_over_the_default():
    flags, env, file = {"http": "a:1"}, {"TELA_HTTP": "b:1"}, {"http": "c:1"}
    assert resolve(flags, env, file)["http"] == ("a:1", "flag")
    assert resolve({}, env, file)["http"] == ("b:1", "environment")
    assert resolve({}, {}, file)["http"] == ("c:1", "file")
    assert resolve({}, {}, {})["http"] == (None, "default")


def test_an_unset_flag_and_an_empty_variable_say_nothing():
    settings = resolve({"http": None, "role": ()}, {"TELA_HTTP": "", "TELA_ROLE": "relay"}, {"http": "c:1"})
    assert settings["http"] == ("c:1", "file")
    assert settings["role"] == (("relay",), "environment")


def test_flags_that_are_no_settings_are_somebody_elses():
    assert resolve({"process": ("vllm serve m",)}, {}, {}).keys() == SETTINGS.keys()


def test_a_flag_that_is_false_was_set():
    assert resolve({"insecure_http": False}, {"TELA_INSECURE_HTTP": "1"}, {})["insecure_http"] == (False, "flag")


def test_lists_come_as_lists_or_with_commas():
    env = {"TELA_ROLE": "ingress, relay,"}
    file = {"serve_to": ["project:p", "user:u"], "advertise": "ws://h:1"}
    settings = resolve({}, env, file)
    assert settings["role"].value == ("ingress", "relay")
    assert settings["serve_to"].value == ("project:p", "user:u")
    assert settings["advertise"].value == ("ws://h:1",)


def test_text_becomes_what_the_setting_is():
    env = {"TELA_SLOT": "3", "TELA_DRAIN_S": "2.5", "TELA_INSECURE_HTTP": "Yes", "TELA_LOG_LEVEL": "DEBUG"}
    settings = resolve({}, env, {})
    assert [settings[name].value for name in ("slot", "drain_s", "insecure_http", "log_level")] == [
        3, 2.5, True, "debug",
    ]  # fmt: skip


def test_an_unknown_key_offers_the_nearest_name():
    assert "did you mean tls_cert?" in refused(file={"tls-cert": "x"})
    assert "did you mean listen?" in refused(file={"lisen": "x"})


def test_a_key_like_none_lists_what_there_is():
    assert "fabric, role" in refused(file={"zzz": 1})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("slot", "one"), ("slot", -1), ("slot", True), ("slot", 1.0), ("engine_port", 0), ("engine_port", 70_000),
        ("drain_s", "soon"), ("drain_s", float("nan")), ("drain_s", False), ("insecure_http", "yes"),
        ("insecure_http", 1), ("role", {"a": 1}), ("role", [1]), ("http", 7480), ("log_level", "loud"),
    ],
)  # fmt: skip
def test_a_wrong_value_in_the_file_names_field_value_and_remedy(name, value):
    said = refused(file={name: value})
    assert f"{name} in config.toml" in said
    assert SETTINGS[name].kind.what in said
    assert SETTINGS[name].help in said


@pytest.mark.parametrize(
    ("name", "text"),
    [("SLOT", "x"), ("SLOT", "-1"), ("DRAIN_S", "nan"), ("INSECURE_HTTP", "maybe"), ("SLOT", "9" * 99)],
)
def test_a_wrong_variable_is_named(name, text):
    assert f"TELA_{name}" in refused(env={f"TELA_{name}": text})


def test_a_wrong_flag_is_named_as_it_is_typed():
    assert "--drain-s" in refused(flags={"drain_s": -1})


def test_no_file_says_nothing(tmp_path):
    assert read_file(tmp_path / "config.toml") == {}


def test_a_file_is_read(tmp_path):
    (tmp_path / "config.toml").write_text('listen = "0.0.0.0:7481"\nrole = ["relay"]\n')
    assert read_file(tmp_path / "config.toml") == {"listen": "0.0.0.0:7481", "role": ["relay"]}


@pytest.mark.parametrize("content", [b"listen =", b"\xff\xfe", b"a = 1\na = 2"])
def test_what_is_no_toml_is_refused_with_the_file_named(tmp_path, content):
    (tmp_path / "config.toml").write_bytes(content)
    with pytest.raises(TelaError) as caught:
        read_file(tmp_path / "config.toml")
    assert str(tmp_path / "config.toml") in caught.value.message


def test_a_directory_in_its_place_is_refused(tmp_path):
    (tmp_path / "config.toml").mkdir()
    with pytest.raises(TelaError, match=r"config\.toml"):
        read_file(tmp_path / "config.toml")
