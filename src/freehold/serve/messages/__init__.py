"""Anthropic's Messages API, over the same chats, tools and answers as the others."""
