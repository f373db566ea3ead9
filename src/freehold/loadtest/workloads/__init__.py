"""What is asked: conversations, made or read from files."""
