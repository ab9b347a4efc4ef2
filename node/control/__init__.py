"""The control API of one node: HTTP on a unix socket, the only way in for every face."""
