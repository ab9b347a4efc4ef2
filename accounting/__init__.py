"""Who may call and what was used: API keys, intents before a request, one usage row after it."""
