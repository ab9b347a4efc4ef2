"""Where models should run: proposals computed from demand and capacity. Arrives after the foundation."""
