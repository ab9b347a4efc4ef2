"""The wrapped engine: starting it, knowing that it is ready, and the demo engine that ships."""
