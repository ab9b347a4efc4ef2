"""The faces of tela: the command line, the terminal console and the web dashboard.

Faces look at a node through its control API; they decide nothing about the fabric themselves.
"""

__version__ = "0.1.0"
