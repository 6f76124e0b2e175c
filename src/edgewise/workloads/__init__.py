"""What clients ask for: generated streams and recorded ones; each part is imported by itself."""
