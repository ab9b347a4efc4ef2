"""The process that runs on every machine: engines, the request path and the sockets.

Shells are thin: what to do is decided in `registry`, `gossip` and `accounting`; this package does it.
"""
