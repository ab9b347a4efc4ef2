"""Handing signed records to a node here, and reading what it made of them."""

from base64 import b64encode
from collections.abc import Sequence

from console.client import Control
from registry.errors import TelaError
from registry.record import Record
from registry.text import clean


def publish(control: Control, records: Sequence[Record]) -> None:
    """Give records to the node here, which spreads them.

    Raises:
        TelaError: it refused one, or one counts nowhere; the reason says whose word is missing.
    """
    answer = control.post("/records", {"records": [b64encode(record.raw).decode() for record in records]})
    for record, result in zip(records, answer["results"], strict=True):
        if not result["counts"]:
            raise TelaError(
                f"the {record.key.kind} was signed, but counts nowhere: {clean(str(result['why']))}",
                hint="tela operators list shows who may do what; tela whoami who you are",
                code="not_entitled",
            )
