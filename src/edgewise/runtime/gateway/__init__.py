"""The gateway of an access site: asks the core where streams and requests go, and forwards them."""
