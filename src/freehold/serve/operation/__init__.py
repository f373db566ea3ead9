"""What operators ask a server: health, metrics, profiles."""
