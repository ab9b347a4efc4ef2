"""Names models are offered by instead of their own."""

import pytest

from node.engine.aliases import Alias, read_aliases, under_aliases
from registry.errors import TelaError
from registry.kinds import Offer

LISTED = (Offer(id="base", context_tokens=9), Offer(id="adapter"))


def named(*given):
    return under_aliases(LISTED, read_aliases(given))


def ids(found):
    return [offer.id for offer in found.offers]


def test_both_forms_are_read():
    assert read_aliases(["a", "b=org/m"]) == (Alias("a", None), Alias("b", "org/m"))


@pytest.mark.parametrize("given", ["", "=m", "a=", "-a", "a b", "a=b=c", "a=../m", "x\x1b"])
def test_a_name_that_cannot_stand_in_a_record_is_refused(given):
    with pytest.raises(TelaError, match="no usable name"):
        read_aliases([given])


def test_a_name_for_two_models_is_refused():
    with pytest.raises(TelaError, match="twice"):
        read_aliases(["a=m", "a=n"])


def test_without_aliases_models_have_their_own_names():
    assert (ids(named()), named().names) == (["base", "adapter"], {})


def test_a_plain_alias_is_of_the_first_model_and_hides_its_name():
    found = named("nice")
    assert ids(found) == ["nice", "adapter"]
    assert found.names == {"nice": "base"}
    assert found.offers[0].context_tokens == 9


def test_several_aliases_of_one_model_are_all_offered():
    assert ids(named("nice", "nicer", "nicest=base")) == ["nice", "nicer", "nicest", "adapter"]


def test_an_alias_of_a_named_model_leaves_the_first_alone():
    found = named("tuned=adapter")
    assert ids(found) == ["tuned", "base"]
    assert found.names == {"tuned": "adapter"}


def test_an_alias_of_a_model_that_is_not_there_is_missing():
    found = named("later=loaded-later")
    assert (ids(found), found.missing) == (["base", "adapter"], ("later",))


def test_an_alias_that_is_another_model_s_name_hides_that_model():
    found = named("adapter=base")
    assert (ids(found), found.names) == (["adapter"], {"adapter": "base"})


def test_a_model_may_keep_its_own_name_beside_an_alias():
    found = named("base=base", "nice=base")
    assert (ids(found), found.names) == (["base", "nice", "adapter"], {"nice": "base"})


def test_of_nothing_there_is_nothing_to_offer():
    found = under_aliases((), read_aliases(["a"]))
    assert (found.offers, found.missing) == ((), ("a",))
