"""augment."""
