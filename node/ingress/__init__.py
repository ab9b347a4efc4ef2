"""The OpenAI-compatible door: one request from the client's bytes to the worker's and back."""
