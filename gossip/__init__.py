"""How nodes speak: encrypted links, streams on them, and the spread of records.

Errors: `LocalProtocolError` (we asked for something impossible) and `RemoteProtocolError` (the other end
broke the protocol; the link must be dropped), both under `registry.errors.TelaError`.
"""
