"""What is known and what counts: signed records, their merge, and the views derived from them.

Pure: no I/O, no clock, no dice. Errors: `TelaError` is the root of every error that may be shown;
`RecordRefused` carries why bytes from outside did not become a record.
"""
