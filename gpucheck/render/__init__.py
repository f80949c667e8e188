"""Views of reports. Nothing here judges; nothing here knows what a GPU is beyond its name."""
