"""An HTTP client that measures: it notes when bytes arrive before it looks at them."""
