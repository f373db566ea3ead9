"""Chats: the prompt, what the answer must be, how the model writes it, the answer's form."""
