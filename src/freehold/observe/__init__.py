"""What an engine did and where its time went, for people and their tools. Arithmetic and text; no arrays, no HTTP."""
