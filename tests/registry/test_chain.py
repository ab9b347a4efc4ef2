from registry.chain import Filter, sift

SMALL: Filter[int] = Filter("size", lambda n: "too large" if n > 5 else None)
EVEN: Filter[int] = Filter("parity", lambda n: "odd" if n % 2 else None)


def test_the_first_objection_excludes_and_is_named():
    sifted = sift([1, 2, 7, 4], [SMALL, EVEN])
    assert sifted.kept == (2, 4)
    assert [(out.candidate, out.filter, out.reason) for out in sifted.excluded] == [
        (1, "parity", "odd"),
        (7, "size", "too large"),
    ]
    assert sifted.counts() == {"parity": 1, "size": 1}


def test_without_filters_everything_is_kept():
    assert sift([3, 1], ()).kept == (3, 1)
