"""Commands as users type them: what they print, and how they end."""
