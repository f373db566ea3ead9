"""Who may ask for what, and how much of it: keys, their limits, and what they used. Knows no HTTP."""
