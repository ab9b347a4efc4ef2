"""The demo's script: what is called, ordered and broken, and what must hold."""
