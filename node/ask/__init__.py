"""Questions to another node over a link, authorised where they are answered."""
