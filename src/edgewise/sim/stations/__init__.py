"""Task graphs over stations (nodes and links): the event-driven engine, and what runs on it."""
