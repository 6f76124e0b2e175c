"""Links that messages share: first come first served, or all at once; level by level."""
